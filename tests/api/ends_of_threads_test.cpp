// Threads that end in every way while they use tiermem, and processes that end while threads use
// it. A part of a test that could end its process runs in a child of fork.
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/forked_child.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kBytes = 65536;

// Uses the context once: acquires two views of the same range, and sometimes a buffer of its own.
bool use(Context& context, const Access& access, unsigned how) {
  ViewRecord views[2];
  for (ViewRecord& view : views) {
    if (!context.acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok()) {
      return false;
    }
  }
  bool well = true;
  if (how % 3 == 0) {
    auto buffer = context.alloc(4096);
    well = buffer.ok() && buffer->acquire(kDiscard).ok();
  }
  for (const ViewRecord& view : views) {
    well = context.release({&view, 1}).ok() && well;
  }
  return well;
}

struct Ending {
  Context* context;
  Access access;
  unsigned seed;
  std::atomic<unsigned>* wrong;
  pthread_key_t key;
  unsigned rounds;
  bool use_now() const { return use(*context, access, seed + rounds); }
};

void in_key_destructor(void* argument) {
  auto& mine = *static_cast<Ending*>(argument);
  *mine.wrong += mine.use_now() ? 0 : 1;
  if (mine.rounds-- > 0) {
    *mine.wrong += ::pthread_setspecific(mine.key, argument) == 0 ? 0 : 1;
  }
}

struct InThreadLocal {
  Ending* mine = nullptr;
  ~InThreadLocal() {
    if (mine != nullptr) {
      *mine->wrong += mine->use_now() ? 0 : 1;
    }
  }
};
thread_local InThreadLocal t_ending;

void* end_somehow(void* argument) {
  auto& mine = *static_cast<Ending*>(argument);
  std::minstd_rand random(mine.seed);
  if (random() % 2 == 0) {
    t_ending.mine = &mine;
  }
  if (random() % 2 == 0) {
    mine.rounds = static_cast<unsigned>(random() % 5);
    *mine.wrong += ::pthread_setspecific(mine.key, &mine) == 0 ? 0 : 1;
  }
  if (random() % 4 != 0) {
    *mine.wrong += mine.use_now() ? 0 : 1;
  }
  if (random() % 3 == 0) {
    ::pthread_exit(nullptr);
  }
  return nullptr;
}

// Keys are created before and after the context, so destructors run on both sides of tiermem's.
TEST(EndsOfThreads, threads_end_in_all_orders_then_no_view_is_lost_or_shared) {
  if (kThreadSanitizer) {
    GTEST_SKIP()
        << "the thread sanitizer forgets a thread before the last destructors of its keys run";
  }
  pthread_key_t before{}, after{};
  ASSERT_EQ(::pthread_key_create(&before, in_key_destructor), 0);
  auto context = make_context("dram=16M; nvme=off");
  ASSERT_NE(context, nullptr);
  ASSERT_EQ(::pthread_key_create(&after, in_key_destructor), 0);
  Buffer buffer = make_buffer(*context, kBytes, "shared");
  std::atomic<unsigned> wrong{0};
  for (unsigned seed = 1; seed <= 320;) {
    std::vector<Ending> endings;
    for (int i = 0; i < 8; ++i, ++seed) {
      endings.push_back(
          {context.get(), buffer.range(), seed, &wrong, seed % 2 == 0 ? before : after, 0});
    }
    std::vector<pthread_t> threads(endings.size());
    for (std::size_t i = 0; i < threads.size(); ++i) {
      ASSERT_EQ(::pthread_create(&threads[i], nullptr, end_somehow, &endings[i]), 0);
    }
    for (const pthread_t thread : threads) {
      ASSERT_EQ(::pthread_join(thread, nullptr), 0);
    }
  }
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_TRUE(context->close().ok()) << "a view is still held";
  EXPECT_EQ(::pthread_key_delete(before), 0);
  EXPECT_EQ(::pthread_key_delete(after), 0);
}

// A pending cancellation takes effect at the first cancellation point. No such point is inside a
// call, where it would leave the records of a request behind.
TEST(EndsOfThreads, cancellation_pending_before_a_call_then_the_call_ends_first) {
  const Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() +
                              ":64M; log=debug; log_file=" + directory.path() + "/log");
  ASSERT_NE(context, nullptr);
  struct Cancelled {
    Context* context;
    Buffer buffer;
    std::atomic<int> calls{0};
  };
  for (int i = 0; i < 8; ++i) {
    Cancelled mine{context.get(), make_buffer(*context, kBytes, "cancelled")};
    ASSERT_TRUE(mine.buffer.write(0, &i, sizeof i).ok());
    ASSERT_TRUE(mine.buffer.evict().ok());
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(
                  &thread, nullptr,
                  [](void* argument) -> void* {
                    auto& all = *static_cast<Cancelled*>(argument);
                    if (::pthread_cancel(::pthread_self()) != 0) {
                      return nullptr;
                    }
                    {
                      auto view = all.buffer.acquire(kWrite);  // Read from the disk.
                      all.calls += view.ok() ? 1 : 0;
                    }
                    all.calls += all.buffer.evict().ok() ? 1 : 0;
                    Op op;
                    const Access access = all.buffer.range();
                    all.calls += all.context->prefetch({&access, 1}, 0, &op).ok() ? 1 : 0;
                    all.calls += op.wait().ok() ? 1 : 0;
                    all.calls += all.context->alloc(4 << 20).ok() ? 1 : 0;
                    all.calls += all.context->stats_json().ok() ? 1 : 0;
                    ::pthread_testcancel();
                    return nullptr;
                  },
                  &mine),
              0);
    void* result = nullptr;
    ASSERT_EQ(::pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_EQ(mine.calls.load(), 6);
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_TRUE(context->close().ok());
}

Context* g_context = nullptr;
Access g_access;

// Threads continue to call while another thread, or the main one, ends the process. The exit
// handlers call too.
bool exits_amid_calls(bool from_main) {
  static std::unique_ptr<Context> context = make_context("dram=16M; nvme=off");
  static Buffer buffer = make_buffer(*context, kBytes, "shared");
  g_context = context.get();
  g_access = buffer.range();
  if (::atexit([] {
        if (!use(*g_context, g_access, 0)) {
          ::_exit(3);
        }
      }) != 0) {
    return false;
  }
  std::atomic<unsigned> running{0};
  for (unsigned i = 0; i < 4; ++i) {
    std::thread([i, &running] {
      ++running;
      for (unsigned n = i;; ++n) {
        use(*g_context, g_access, n);
      }
    }).detach();
  }
  while (running.load() < 4) {
    std::this_thread::yield();
  }
  if (from_main) {
    ::exit(0);
  }
  std::thread([] { ::exit(0); }).detach();
  for (;;) {
    ::pause();
  }
}

TEST(EndsOfThreads, process_exits_while_threads_call_then_it_ends_well) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer's own exit handlers report the threads that still run";
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(ended_well(child_that([&] { return exits_amid_calls(i % 2 == 0); })));
  }
}

// The child has only the forking thread. The slots of the other threads are free in it, and it
// keeps its own.
TEST(EndsOfThreads, child_of_fork_goes_on_with_slots_of_its_own) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer has no threads in a child of fork, or a locked allocator: another "
                    "thread may have allocated during the fork";
  }
  auto context = make_context("dram=16M; nvme=off");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, kBytes, "parent's");
  ASSERT_TRUE(use(*context, buffer.range(), 0));
  const pid_t child = child_that([] {
    auto own = make_context("dram=16M; nvme=off");
    Buffer mine = make_buffer(*own, kBytes, "child's");
    std::atomic<unsigned> wrong{use(*own, mine.range(), 0) ? 0u : 1u};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 8; ++i) {
      threads.emplace_back([&] { wrong += use(*own, mine.range(), 1) ? 0 : 1; });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return wrong.load() == 0 && use(*own, mine.range(), 0) && own->close().ok();
  });
  EXPECT_TRUE(ended_well(child));
  EXPECT_TRUE(use(*context, buffer.range(), 0));
}

}  // namespace
}  // namespace tiermem::test

// Fault L5: threads that use tiermem after tiermem's own key destructor had run shared view slots
// with other threads.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/made.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

// A thread gets 64 slots at a time. The low 22 bits of a token are the number of its slot.
std::uint64_t chunk_of(const ViewRecord& view) {
  return (view.token[0] & ((std::uint64_t{1} << 22) - 1)) / 64;
}

// The program's key is created after the context, so its destructor runs after tiermem's.
struct Late {
  explicit Late(void (*run)(void*)) { EXPECT_EQ(::pthread_key_create(&key, run), 0); }
  ~Late() { EXPECT_EQ(::pthread_key_delete(key), 0); }
  pthread_key_t key{};
};

struct Ends {
  Context* context = nullptr;
  Access access;
  std::atomic<int> stage{0};
  std::uint64_t late_chunk = 0;
  bool late_ok = false;

  void await(int wanted) {
    while (stage.load() < wanted) {
      std::this_thread::yield();
    }
  }
};

TEST(FaultsFound, L05_key_destructor_after_tiermems_takes_slots_of_its_own) {
  if (kThreadSanitizer) {
    GTEST_SKIP()
        << "the thread sanitizer forgets a thread before the last destructors of its keys run";
  }
  auto context = make_context("dram=16M; nvme=off");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 65536, "shared");
  ViewRecord first;
  const Access access = buffer.range();
  ASSERT_TRUE(context->acquire({&access, 1}, Timeout::forever(), {&first, 1}).ok());

  Ends ends;
  ends.context = context.get();
  ends.access = access;
  const Late late([](void* argument) {
    auto& mine = *static_cast<Ends*>(argument);
    mine.stage.store(1);
    mine.await(2);
    ViewRecord view;
    mine.late_ok = mine.context->acquire({&mine.access, 1}, Timeout::forever(), {&view, 1}).ok();
    mine.late_chunk = chunk_of(view);
    mine.stage.store(3);
    mine.await(4);
    mine.late_ok = mine.late_ok && mine.context->release({&view, 1}).ok();
  });
  std::thread ending([&] {
    ViewRecord view;
    EXPECT_TRUE(context->acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok());
    EXPECT_TRUE(context->release({&view, 1}).ok());
    EXPECT_EQ(::pthread_setspecific(late.key, &ends), 0);
  });
  ends.await(1);
  std::uint64_t other_chunk = 0;
  std::thread other([&] {
    ViewRecord view;
    EXPECT_TRUE(context->acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok());
    other_chunk = chunk_of(view);
    ends.stage.store(2);
    ends.await(3);
    EXPECT_TRUE(context->release({&view, 1}).ok());
  });
  other.join();
  ends.stage.store(4);
  ending.join();
  EXPECT_TRUE(ends.late_ok);
  EXPECT_NE(ends.late_chunk, other_chunk) << "two live threads share view slots";
  EXPECT_NE(ends.late_chunk, chunk_of(first));
  EXPECT_TRUE(context->release({&first, 1}).ok());
  EXPECT_TRUE(context->close().ok());
}

// The destructor sets its key again until the C library gives up, after four rounds of destructors.
TEST(FaultsFound, L05_destructors_of_all_rounds_hold_views_then_every_release_is_right) {
  if (kThreadSanitizer) {
    GTEST_SKIP()
        << "the thread sanitizer forgets a thread before the last destructors of its keys run";
  }
  auto context = make_context("dram=16M; nvme=off");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 65536, "shared");
  struct Round {
    Context* context;
    Access access;
    pthread_key_t key;
    std::atomic<unsigned>* refused;
    unsigned left;
  };
  const Late late([](void* argument) {
    auto& mine = *static_cast<Round*>(argument);
    ViewRecord views[3];
    for (ViewRecord& view : views) {
      if (!mine.context->acquire({&mine.access, 1}, Timeout::forever(), {&view, 1}).ok()) {
        ++*mine.refused;
        return;
      }
    }
    std::this_thread::yield();
    for (ViewRecord& view : views) {
      *mine.refused += mine.context->release({&view, 1}).ok() ? 0 : 1;
    }
    if (--mine.left > 0 && ::pthread_setspecific(mine.key, argument) != 0) {
      ++*mine.refused;
    }
  });
  std::atomic<unsigned> refused{0};
  constexpr int kAtOnce = 8, kTimes = 60;
  for (int i = 0; i < kTimes; ++i) {
    std::vector<Round> rounds(kAtOnce, {context.get(), buffer.range(), late.key, &refused, 5});
    std::vector<std::thread> threads;
    for (Round& round : rounds) {
      threads.emplace_back([&round] {
        ViewRecord view;
        *round.refused +=
            round.context->acquire({&round.access, 1}, Timeout::forever(), {&view, 1}).ok() &&
                    ::pthread_setspecific(round.key, &round) == 0 &&
                    round.context->release({&view, 1}).ok()
                ? 0
                : 1;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(refused.load(), 0u);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_TRUE(context->close().ok()) << "a view is still held";
}

}  // namespace
}  // namespace tiermem::test

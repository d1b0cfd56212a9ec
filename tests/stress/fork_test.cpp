// A process forks while its other threads are inside of calls. Property: the child makes each call,
// and none waits for a lock of a thread that does not exist there. Then it makes a context of its
// own and ends all. Method: many forks at random moments beside each kind of call. A child that
// hangs is ended by SIGALRM.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr Place kAny{Kind::any, 0};

/// The calls are made on these. They exist before the first fork.
struct Subjects {
  std::unique_ptr<Context> context;
  Buffer mapped, file;
  void* object = nullptr;
};

/// Makes one call, by number. Returns false for an answer that no program expects. `object` is the
/// calling thread's own.
bool call(Subjects& of, void*& object, std::uint64_t i) {
  Context& context = *of.context;
  std::array<std::byte, 4096> bytes{};
  switch (i % 10) {
    case 0:
      return context.usable_size(object).ok();
    case 1: {
      auto moved = context.realloc_at(kAny, object, 100 + i % 7 * 100);
      object = moved.ok() ? *moved : object;
      return moved.ok();
    }
    case 2: {
      const Access part{of.file.handle(), i % 256 * 4096 + 100, 3000, kRead, {}, 0};
      return context.advise({&part, 1}, Advice::dont_need).ok();
    }
    case 3:
      return of.file.read(i % 64 * 4096, bytes.data(), bytes.size()).ok();
    case 4:
      return of.mapped.write(i % 64 * 4096, bytes.data(), bytes.size()).ok();
    case 5: {
      auto small = context.alloc(100'000);
      return small.ok() && small->write(0, bytes.data(), bytes.size()).ok();
    }
    case 6: {
      auto made = context.malloc_at(kAny, 200);
      return made.ok() && context.free_ptr(*made).ok();
    }
    case 7: {
      const Access range = of.mapped.range(i % 16 * 65536, 4096);
      ViewRecord view;
      auto op = context.acquire_async({&range, 1}, {&view, 1});
      return op.ok() && op->wait().ok() && context.release({&view, 1}).ok();
    }
    case 8:
      (void)context.stats();
      return context.stats_json().ok();
    default:
      return context.why(of.mapped.handle(), i % 64 * 4096).ok();
  }
}

/// Makes and ends contexts of its own.
void come_and_go(const std::string& spec) {
  auto made = Context::create(spec);
  if (made.ok()) {
    (void)(*made)->alloc(65536, {.flags = kMapped});
  }
}

class ForkBesideCalls : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kSanitized) {
      GTEST_SKIP() << "a thread of the parent may hold the lock of the sanitizer's allocator";
    }
    std::ofstream(path_, std::ios::binary) << std::string(2 * kMiB, 'f');
    spec_ = "dram=16M; nvme=" + directory_.path() + ":256M; fork=" + GetParam();
    of_.context = make_context(spec_);
    ASSERT_NE(of_.context, nullptr);
    auto mapped = of_.context->alloc(kMiB, {.extent_bytes = 65536, .flags = kMapped});
    if (mapped.code() == Code::unsupported) {
      GTEST_SKIP() << mapped.message();
    }
    ASSERT_TRUE(mapped.ok()) << mapped.message();
    of_.mapped = std::move(*mapped);
    auto file = of_.context->adopt_file(path_.c_str(), 0, 0,
                                        {.extent_bytes = 65536, .flags = kMapped | kPrivate});
    ASSERT_TRUE(file.ok()) << file.message();
    of_.file = std::move(*file);
    auto object = of_.context->malloc_at(kAny, 100);
    ASSERT_TRUE(object.ok()) << object.message();
    of_.object = *object;
  }

  // Runs in the child. Returns its exit code.
  int use_and_end() {
    ::alarm(20);
    const bool follows = std::string_view(GetParam()) == "follow";
    for (std::uint64_t i = 0; follows && i < 10; ++i) {
      if (!call(of_, of_.object, i)) {
        return static_cast<int>(10 + i);
      }
    }
    auto own = Context::create("dram=8M; nvme=off");
    if (!own.ok() || !(*own)->alloc(65536, {.flags = kMapped}).ok()) {
      return 2;
    }
    of_.mapped.reset();
    of_.file.reset();
    of_.context.reset();  // With threads that are another's, where it does not follow.
    auto buffer = (*own)->alloc(65536);
    if (!buffer.ok() || !buffer->write(0, "x", 1).ok()) {
      return 3;
    }
    return (*own)->close(true).ok() ? 0 : 4;
  }

  Directory directory_;
  const std::string path_ = directory_.path() + "/file";
  std::string spec_;
  Subjects of_;
};

TEST_P(ForkBesideCalls, child_waits_for_no_thread_of_its_parent) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto object = of_.context->malloc_at(kAny, 100);
      if (!object.ok()) {
        ++wrong;
        return;
      }
      void* mine = *object;
      // Three threads stay with few calls, so that a fork meets these often.
      for (std::uint64_t i = t; !stop.load(std::memory_order_relaxed); i += t < 3 ? 10 : 7) {
        wrong += call(of_, mine, i) ? 0 : 1;
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      come_and_go("dram=4M; nvme=off; userfault=off");
    }
  });
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(use_and_end());
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "round " << round << ": "
        << (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status))
                                : "exit " + std::to_string(WEXITSTATUS(status)));
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(, ForkBesideCalls, ::testing::Values("end", "follow"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tiermem::test

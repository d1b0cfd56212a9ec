// fork=follow: after fork both processes continue with their mapped buffers, each with its own
// bytes. A child's exit code reports whether it saw the right bytes. A child that hangs is ended by
// SIGALRM.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "support/forked_child.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kMemory = 16 * kMiB;
constexpr std::uint64_t kLarge = (kSanitized ? 32 : 64) * kMiB;

/// One process signals and the other waits, even if processes between them end.
struct Signal {
  Signal() { EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0); }
  ~Signal() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void give(char what = 1) const { EXPECT_EQ(::write(ends[1], &what, 1), 1); }
  /// Returns 0 after a minute; this object holds both ends, so the pipe does not close.
  char wait() const {
    char what = 0;
    pollfd ready{ends[0], POLLIN, 0};
    return ::poll(&ready, 1, 60'000) == 1 && ::read(ends[0], &what, 1) == 1 ? what : char{0};
  }
  int ends[2] = {-1, -1};
};

struct Fork : ::testing::TestWithParam<const char*> {
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
    }
    open();
  }
  void open(const std::string& more = "; fork=follow", const std::string& cap = "512M") {
    auto made = Context::create("dram=16M; nvme=" + directory.path() + ":" + cap +
                                "; io_engine=" + GetParam() + more);
    if (made.code() == Code::unavailable) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    context = std::move(made).value();
    if (kAddressSanitizer) {
      // A starting thread allocates memory. A fork at this instant leaves the sanitizer's allocator
      // locked in the child (gcc 12).
      EXPECT_TRUE(comes_true(threads_have_started));
    }
    auto probe = context->alloc(4096, {.flags = kMapped});
    if (probe.code() == Code::unsupported) {
      GTEST_SKIP() << probe.message();
    }
  }
  Buffer mapped(std::uint64_t bytes, std::uint64_t extent = 0) {
    auto made =
        context->alloc(bytes, {.extent_bytes = extent, .flags = kMapped, .label = "mapped"});
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(made).value() : Buffer();
  }
  static std::span<std::uint64_t> words(Buffer& buffer) {
    auto address = buffer.address();
    EXPECT_TRUE(address.ok()) << address.message();
    return {reinterpret_cast<std::uint64_t*>(address.ok() ? *address : nullptr),
            address.ok() ? buffer.size() / 8 : 0};
  }
  static ::testing::AssertionResult evicts(Buffer& buffer) {
    const Status status = buffer.evict();
    return status.ok() ? ::testing::AssertionSuccess()
                       : ::testing::AssertionFailure() << status.message();
  }
  /// Waits until slots that no process reads any more are returned.
  bool slots_come_back(std::uint64_t bytes) {
    return eventually([&] { return context->stats().block_used <= bytes; });
  }
  Directory directory;
  std::unique_ptr<Context> context;
};

INSTANTIATE_TEST_SUITE_P(Engines, Fork, ::testing::Values("io_uring", "threads"),
                         [](const auto& engine) { return std::string(engine.param); });

TEST_P(Fork, a_child_sees_the_bytes_of_the_fork_while_the_parent_overwrites_them) {
  for (const std::uint64_t extent : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{65536}}) {
    Buffer buffer = mapped(kLarge, extent);
    const std::span<std::uint64_t> all = words(buffer);
    fill(all, 1);
    const pid_t child = child_that([&] { return wrong(all, 1) == 0 && wrong(all, 1) == 0; });
    fill(all, 2);
    EXPECT_EQ(wrong(all, 2), 0u);
    EXPECT_TRUE(ended_well(child)) << "extents of " << extent;
    EXPECT_EQ(wrong(all, 2), 0u);
    buffer.reset();
  }
  EXPECT_TRUE(slots_come_back(0));
}

TEST_P(Fork, a_child_writes_everything_and_the_parent_has_its_own) {
  Buffer buffer = mapped(kLarge);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 3);
  const pid_t child = child_that([&] {
    fill(all, 4);
    return wrong(all, 4) == 0 && context->stats().dram_used <= kMemory;
  });
  EXPECT_EQ(wrong(all, 3), 0u);
  EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(wrong(all, 3), 0u);
  fill(all, 5);
  EXPECT_EQ(wrong(all, 5), 0u);
  EXPECT_LE(context->stats().dram_used, kMemory);
}

TEST_P(Fork, a_child_allocates_and_frees_as_its_parent_does) {
  Buffer old = mapped(kLarge);
  fill(words(old), 6);
  const pid_t child = child_that([&] {
    Buffer own = mapped(kLarge);
    fill(words(own), 7);
    bool good = wrong(words(own), 7) == 0 && wrong(words(old), 6) == 0;
    old.reset();
    own.reset();
    good = good && eventually([&] { return context->stats().buffers == 0; });
    good = good && context->close().ok();
    context.reset();
    return good;
  });
  Buffer other = mapped(kLarge);
  fill(words(other), 8);
  EXPECT_EQ(wrong(words(old), 6), 0u);
  EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(wrong(words(old), 6), 0u);
  EXPECT_EQ(wrong(words(other), 8), 0u);
}

TEST_P(Fork, views_of_a_child_are_held_by_its_thread) {
  Buffer buffer = mapped(kMiB);
  const auto is_named = [&] {
    auto view = buffer.acquire(kRead, 0, 4096);
    const Status refused = context->close();
    const std::string me = "by thread " + std::to_string(::gettid()) + " ";
    return view.ok() && refused.code() == Code::busy &&
           std::string_view(refused.message()).find(me) != std::string_view::npos;
  };
  EXPECT_TRUE(is_named());
  EXPECT_TRUE(ended_well(child_that(is_named)));
  EXPECT_TRUE(is_named());
}

// The grandchild reads the slots of a parent that has ended, and reports the result by a pipe.
TEST_P(Fork, it_holds_when_the_parent_exits_first) {
  Buffer buffer = mapped(kLarge);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 9);
  const Signal gone, done;
  const pid_t child = child_that([&] {
    fill(all, 10);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(100);
      (void)gone.wait();
      bool good = wrong(all, 10) == 0;
      fill(all, 11);
      good = good && wrong(all, 11) == 0;
      done.give(good ? 'y' : 'n');
      ::_exit(0);
    }
    fill(all, 12);
    return wrong(all, 12) == 0;
  });
  fill(all, 13);
  EXPECT_TRUE(ended_well(child));
  gone.give();
  EXPECT_EQ(done.wait(), 'y');
  EXPECT_EQ(wrong(all, 13), 0u);
}

TEST_P(Fork, a_killed_parent_takes_nothing_from_its_child) {
  Buffer buffer = mapped(kLarge);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 14);
  const Signal ready, gone, done;
  const pid_t middle = ::fork();
  if (middle == 0) {
    ::alarm(100);
    await_threads();
    if (::fork() == 0) {
      ::alarm(100);
      bool good = wrong(all.first(all.size() / 2), 14) == 0;
      ready.give();
      (void)gone.wait();
      good = good && wrong(all, 14) == 0;
      done.give(good ? 'y' : 'n');
      ::_exit(0);
    }
    for (std::uint64_t seed = 15;; ++seed) {
      fill(all, seed);
    }
  }
  (void)ready.wait();
  ASSERT_EQ(::kill(middle, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(middle, &status, 0), middle);
  gone.give();
  EXPECT_EQ(done.wait(), 'y');
}

// Each generation checks its own bytes and gives other bytes to the next one.
bool generation(std::span<std::uint64_t> all, std::uint64_t seed, unsigned left) {
  bool good = wrong(all, seed) == 0;
  fill(all, seed + 1);
  pid_t child = 0;
  if (left > 0) {
    child = child_that([&] { return generation(all, seed + 1, left - 1); });
    fill(all.first(all.size() / 2), seed + 100);
    good = good && wrong(all.subspan(all.size() / 2), seed + 1, all.size() / 2) == 0;
    good = good && wrong(all.first(all.size() / 2), seed + 100) == 0;
  }
  return (child == 0 || ended_well(child)) && good;
}

TEST_P(Fork, children_fork_again) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 20);
  const pid_t child = child_that([&] { return generation(all, 20, 2); });
  EXPECT_EQ(wrong(all, 20), 0u);
  EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(wrong(all, 20), 0u);
}

TEST_P(Fork, fifty_short_children_leave_nothing_behind) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 30);
  ASSERT_TRUE(evicts(buffer));
  const std::uint64_t before = context->stats().block_used;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const pid_t child = child_that([] { return true; });
    const auto part = all.subspan(i * 4096, 4096);
    fill(part, 31, i * 4096);
    EXPECT_TRUE(ended_well(child));
    EXPECT_EQ(wrong(part, 31, i * 4096), 0u);
  }
  ASSERT_TRUE(evicts(buffer));
  EXPECT_TRUE(slots_come_back(before)) << context->stats().block_used << " of " << before;
  EXPECT_EQ(wrong(all.first(50 * 4096), 31), 0u);
  EXPECT_EQ(wrong(all.subspan(50 * 4096), 30, 50 * 4096), 0u);
  int descriptors = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    descriptors += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  }
  EXPECT_LT(descriptors, 40);
}

// The writers never stop. Each word in the child has a value that it had at some moment of its
// writer, and keeps it. A writer always writes the first word of a pair first.
TEST_P(Fork, threads_that_write_at_the_moment_of_a_fork_lose_nothing) {
  Buffer buffer = mapped(32 * kMiB, 65536);
  const std::span<std::uint64_t> all = words(buffer);
  constexpr unsigned kWriters = 3;
  constexpr std::size_t kStep = 512;  // One pair of words in each page.
  std::atomic<bool> stop{false};
  // A starting thread allocates memory, and a child of fork could find the sanitizer's allocator
  // locked by it.
  std::latch begun(kWriters);
  std::vector<std::uint64_t> rounds(kWriters);
  std::vector<std::thread> writers;
  for (unsigned t = 0; t < kWriters; ++t) {
    writers.emplace_back([&, t] {
      begun.count_down();
      while (!stop.load(std::memory_order_relaxed)) {
        for (std::size_t i = t * 2; i < all.size(); i += kStep) {
          __atomic_store_n(&all[i], all[i] + 1, __ATOMIC_RELEASE);
          __atomic_store_n(&all[i + 1], all[i + 1] + 1, __ATOMIC_RELEASE);
        }
        ++rounds[t];
      }
    });
  }
  begun.wait();
  for (int i = 0; i < 5; ++i) {
    const pid_t child = child_that([&] {
      for (unsigned t = 0; t < kWriters; ++t) {
        std::uint64_t before = all[t * 2];
        for (std::size_t at = t * 2; at < all.size(); at += kStep) {
          const std::uint64_t first = all[at], second = all[at + 1];
          if (first - second > 1 || before - first > 1) {
            // A round is one pass, so words differ by at most one, at the place that the writer had
            // reached.
            return false;
          }
          before = first;
        }
      }
      return true;
    });
    EXPECT_TRUE(ended_well(child)) << i;
  }
  stop = true;
  for (std::thread& writer : writers) {
    writer.join();
  }
  std::uint64_t bad = 0;
  for (unsigned t = 0; t < kWriters; ++t) {
    for (std::size_t i = t * 2; i < all.size(); i += kStep) {
      bad += all[i] != rounds[t] || all[i + 1] != rounds[t] ? 1 : 0;
    }
  }
  EXPECT_EQ(bad, 0u);
}

// Calls of other threads are in progress, and some of them wait.
TEST_P(Fork, calls_under_way_go_on_in_the_parent_and_hold_up_nobody) {
  Buffer buffer = mapped(8 * kMiB);
  fill(words(buffer), 40);
  auto view = buffer.acquire(kRead, 0, kMemory / 2);
  ASSERT_TRUE(view.ok()) << view.message();
  Buffer large = mapped(16 * kMiB);
  // The address sanitizer's allocator does not survive such forks.
  std::atomic<bool> stop{kAddressSanitizer};
  const std::uint64_t misses = context->stats().misses;
  std::thread waits([&] {  // Waits for the view that the forking thread holds.
    auto all = large.acquire(kRead, 0, large.size());
    EXPECT_TRUE(all.ok()) << all.message();
  });
  while (context->stats().misses == misses) {
    std::this_thread::yield();
  }
  std::thread allocates([&] {
    while (!stop) {
      Buffer some = mapped(4 * kMiB);
      words(some)[0] = 1;
      EXPECT_EQ(words(some)[0], 1u);
    }
  });
  if (kAddressSanitizer) {
    allocates.join();
  }
  for (int i = 0; i < 10; ++i) {
    const pid_t child = child_that(
        [&] { return wrong(view->as<std::uint64_t>(), 40) == 0 && wrong(words(buffer), 40) == 0; });
    EXPECT_TRUE(ended_well(child)) << i;
  }
  stop = true;
  view->release();  // Both threads wait for it, the larger request first.
  if (allocates.joinable()) {
    allocates.join();
  }
  waits.join();
}

TEST_P(Fork, pages_the_program_emptied_are_zero_in_both) {
  for (const std::uint64_t extent : {std::uint64_t{65536}, 2 * kMiB}) {
    // Nothing leaves memory, because an absent page cannot be emptied.
    Buffer buffer = mapped(4 * kMiB, extent);
    const std::span<std::uint64_t> all = words(buffer);
    fill(all, 50);
    const Signal forked;
    const pid_t child = child_that([&] {
      (void)forked.wait();
      bool good = ::madvise(&all[1024], 4096, MADV_DONTNEED) == 0 && buffer.evict().ok();
      good = good && all[1024] == 0 && all[1535] == 0 && wrong(all.first(1024), 50) == 0;
      return good && wrong(all.subspan(1536), 50, 1536) == 0;
    });
    ASSERT_EQ(::madvise(&all[2048], 8192, MADV_DONTNEED), 0);
    const Status evicted = buffer.evict();
    EXPECT_TRUE(evicted.ok()) << evicted.message();
    forked.give();
    EXPECT_EQ(all[2048], 0u) << extent;
    EXPECT_EQ(all[3071], 0u) << extent;
    EXPECT_EQ(wrong(all.first(2048), 50), 0u);
    EXPECT_EQ(wrong(all.subspan(3072), 50, 3072), 0u);
    EXPECT_TRUE(ended_well(child));
  }
}

TEST_P(Fork, system_calls_of_both_reach_what_is_not_there) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 60);
  int file = ::open(directory.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_TRUE(evicts(buffer));
  if (::pwrite(file, &all[0], 4096, 0) < 0 && errno == EFAULT) {
    ::close(file);
    GTEST_SKIP() << "userfaultfd serves user mode only";
  }
  const auto part = static_cast<ssize_t>(8 * kMiB);
  const pid_t child = child_that([&] {
    return ::pwrite(file, &all[0], static_cast<std::size_t>(part), 0) == part &&
           ::pread(file, &all[16 * kMiB / 8], static_cast<std::size_t>(part), 0) == part &&
           wrong(all.subspan(16 * kMiB / 8, 8 * kMiB / 8), 60) == 0;
  });
  fill(all, 61);
  EXPECT_TRUE(ended_well(child));
  ASSERT_EQ(::pread(file, &all[0], static_cast<std::size_t>(part), 0), part);
  EXPECT_EQ(wrong(all.first(8 * kMiB / 8), 60), 0u);
  EXPECT_EQ(wrong(all.subspan(8 * kMiB / 8), 61, 8 * kMiB / 8), 0u);
  ::close(file);
}

TEST_P(Fork, a_child_may_become_another_program) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 70);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/true", "true", nullptr);
    ::_exit(9);
  }
  fill(all, 71);
  EXPECT_TRUE(ended_well(child));
  ASSERT_TRUE(evicts(buffer));
  EXPECT_EQ(wrong(all, 71), 0u);
  EXPECT_TRUE(slots_come_back(32 * kMiB));
  EXPECT_EQ(::system("exit 7") >> 8, 7);
  EXPECT_EQ(wrong(all, 71), 0u);
}

// There is no room for the bytes that the child writes. It gets SIGBUS or an error, and never other
// bytes. The parent is not affected.
TEST_P(Fork, a_child_without_room_on_the_disk_loses_nothing) {
  Buffer buffer = mapped(kLarge);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 80);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    ::signal(SIGBUS, [](int) { ::_exit(0); });
    const rlimit none{1 << 20, 1 << 20};  // The child's own files cannot grow.
    if (::setrlimit(RLIMIT_FSIZE, &none) != 0 || wrong(all, 80) != 0) {
      ::_exit(1);
    }
    const Status evicted = buffer.evict();
    if (wrong(all, 80) != 0) {
      ::_exit(2);
    }
    fill(all, 81);  // More than memory holds, so this cannot succeed.
    ::_exit(evicted.ok() ? 4 : 3);
  }
  EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(wrong(all, 80), 0u);
}

TEST_P(Fork, a_child_that_cannot_follow_has_no_context_and_reads_no_wrong_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs descriptors of its own to look at an object";
#endif
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 90);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int highest = ::dup(0);
  ::close(highest);
  const Handle handle = buffer.handle();
  // 0: not even a pipe. 2: a pipe, but no userfaultfd.
  for (const rlim_t spare : {rlim_t{0}, rlim_t{2}}) {
    const rlimit few{static_cast<rlim_t>(highest) + spare, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGSEGV, [](int) { ::_exit(0); });
      if (context->address(handle).ok()) {
        ::_exit(spare == 2 && wrong(all, 90) == 0 ? 0 : 1);  // The descriptors sufficed.
      }
      const volatile std::uint64_t word = all[0];
      ::_exit(word == word_at(90, 0) ? 2 : 3);
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(ended_well(child));
    EXPECT_EQ(wrong(all, 90), 0u);
  }
  fill(all, 91);
  EXPECT_EQ(wrong(all, 91), 0u);
  EXPECT_TRUE(slots_come_back(32 * kMiB));
}

TEST_P(Fork, what_cannot_follow_and_would_have_to_is_refused) {
  auto without = Context::create("dram=16M; nvme=off; mechanism=auto; userfault=off; fork=follow");
  ASSERT_TRUE(without.ok()) << without.message();
  EXPECT_EQ((*without)->alloc(4096, {.flags = kMapped}).code(), Code::unsupported);
  EXPECT_SAYS((*without)->malloc_at({Kind::any, 0}, 8), "fork=follow");
}

TEST_P(Fork, an_operation_of_the_parent_ends_in_the_child) {
  Buffer buffer = mapped(8 * kMiB);
  fill(words(buffer), 95);
  ASSERT_TRUE(evicts(buffer));
  Op op;
  const Access all = buffer.range();
  ASSERT_TRUE(context->prefetch({&all, 1}, 0, &op).ok());
  const pid_t child = child_that([&] {
    (void)op.wait(Timeout::seconds(20));
    return wrong(words(buffer), 95) == 0;
  });
  EXPECT_TRUE(op.wait().ok());
  EXPECT_TRUE(ended_well(child));
}

// Measures how long the forking thread waits in addition to the fork itself. The time is printed
// and not compared.
TEST_P(Fork, what_it_costs) {
  Buffer buffer = mapped(8 * kMiB);
  fill(words(buffer), 96);
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(0);
    }
    const auto end = std::chrono::steady_clock::now();
    EXPECT_TRUE(ended_well(child));
    RecordProperty(
        "fork_us_" + std::to_string(i),
        static_cast<int>(std::chrono::duration<double, std::micro>(end - begin).count()));
  }
}

}  // namespace
}  // namespace tiermem::test

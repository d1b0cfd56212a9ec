// Mapped buffers without userfaultfd (userfault=off): a touch of an absent extent raises SIGSEGV,
// which tiermem handles. Goal: through the pointer everything works as with userfaultfd.
// Unsupported calls return an error that says so, and signals that are not tiermem's reach the
// program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <span>
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

const std::string kWithout = "; mechanism=auto; userfault=off";

struct MappedSignals : ::testing::Test {
  void SetUp() override {
    context = make_context("dram=16M; nvme=" + directory.path() + ":512M" + kWithout);
    ASSERT_NE(context, nullptr);
    auto made = context->alloc(kBytes, {.flags = kMapped, .label = "by signals"});
    if (made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    buffer = std::move(made).value();
    words = {reinterpret_cast<std::uint64_t*>(*buffer.address()), buffer.size() / 8};
  }
  static constexpr std::uint64_t kBytes = 64 * kMiB;
  Directory directory;
  std::unique_ptr<Context> context;
  Buffer buffer;
  std::span<std::uint64_t> words;
};

TEST_F(MappedSignals, four_times_the_memory_is_read_and_written_through_the_pointer) {
  fill(words, 1);
  EXPECT_EQ(wrong(words, 1), 0u);
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, 16 * kMiB);
  EXPECT_GE(stats.demoted, 48 * kMiB);
  EXPECT_GT(stats.faults, 0u);
  EXPECT_GT(stats.moved_by_remap, 0u);
  EXPECT_EQ(stats.moved_by_uffd + stats.moved_by_copy, 0u);
}

// Each thread counts in words of its own, all over the buffer, while extents come and go.
TEST_F(MappedSignals, running_writers_lose_no_write) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer takes the closing of a window for a write to it";
  }
  constexpr unsigned kThreads = 4;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> rounds(kThreads);
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        for (std::size_t i = t; i < words.size(); i += 65536 / 8) {
          words[i] += 1;
        }
        ++rounds[t];
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    (void)buffer.evict();
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t bad = 0;
  for (unsigned t = 0; t < kThreads; ++t) {
    for (std::size_t i = t; i < words.size(); i += 65536 / 8) {
      bad += words[i] != rounds[t] ? 1 : 0;
    }
  }
  EXPECT_EQ(bad, 0u);
}

TEST_F(MappedSignals, emptied_pages_are_zero_and_errno_is_kept) {
  fill(words, 2);
  ASSERT_TRUE(buffer.evict(0, 4 * kMiB).ok());
  errno = 77;
  EXPECT_EQ(*const_cast<volatile std::uint64_t*>(&words[0]), word_at(2, 0));
  EXPECT_EQ(errno, 77);
  ASSERT_EQ(madvise(&words[0], 8192, MADV_DONTNEED), 0);
  ASSERT_TRUE(buffer.evict(0, 4 * kMiB).ok());
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1023], 0u);
  EXPECT_EQ(wrong(words.subspan(1024), 2, 1024), 0u);
}

TEST_F(MappedSignals, system_calls_on_absent_bytes_fail) {
  fill(words, 3);
  ASSERT_TRUE(buffer.evict(0, 2 * kMiB).ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(write(ends[1], &words[0], 4096), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(wrong(words, 3), 0u);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(MappedSignals, what_cannot_be_says_why) {
  auto small = context->alloc(kMiB, {.extent_bytes = 65536, .flags = kMapped});
  EXPECT_EQ(small.code(), Code::unsupported);
  EXPECT_SAYS(small, "2 MiB");
  auto follows = make_context("dram=16M; nvme=off; fork=follow" + kWithout);
  auto refused = follows->alloc(4 * kMiB, {.flags = kMapped});
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_SAYS(refused, "userfaultfd");
}

sigjmp_buf back;
struct sigaction found {};
void* closed = nullptr;

void on_segv(int signal, siginfo_t* info, void* more) {
  if (info->si_addr == closed) {
    siglongjmp(back, 1);
  }
  found.sa_sigaction(signal, info, more);
}

// The program sets its own handler later, and calls the one that it replaced.
TEST_F(MappedSignals, a_handler_of_the_program_that_calls_the_one_before_keeps_them_working) {
  closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction ours {};
  ours.sa_sigaction = on_segv;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  ASSERT_EQ(sigaction(SIGSEGV, &ours, &found), 0);
  fill(words, 4);
  bool caught = false;
  if (sigsetjmp(back, 1) == 0) {
    *static_cast<volatile char*>(closed) = 1;
  } else {
    caught = true;
  }
  EXPECT_TRUE(caught);
  EXPECT_EQ(wrong(words, 4), 0u);
  sigaction(SIGSEGV, &found, nullptr);
  munmap(closed, 4096);
}

// By SIGSEGV, or by the previous handler if it is a sanitizer's, which reports and exits.
bool ended_by_touch(int status) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
         ((kAddressSanitizer || kThreadSanitizer) && WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

TEST_F(MappedSignals, any_other_touch_of_closed_memory_is_the_end) {
  fill(words, 6);
  const pid_t child = fork();
  if (child == 0) {
    *static_cast<volatile char*>(
        mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) = 1;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(ended_by_touch(status)) << status;
}

TEST_F(MappedSignals, a_child_of_fork_has_none_of_it_and_the_parent_goes_on) {
  fill(words, 5);
  const pid_t child = fork();
  if (child == 0) {
    (void)*static_cast<volatile std::uint64_t*>(words.data());
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(ended_by_touch(status)) << status;
  EXPECT_EQ(wrong(words, 5), 0u);
}

}  // namespace
}  // namespace tiermem::test

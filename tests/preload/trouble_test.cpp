// Cases in which a resource is short. Each is a process of its own (this program again, with
// another environment), so that its end can be checked.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "preload/inner.hpp"
#include "preload/words.hpp"

namespace tiermem::test {
namespace {

// ---- inner cases -------------------------------------------------------------------------------

/// Allocates and checks small blocks with `total` bytes together. Returns false if malloc refused
/// one.
bool small_blocks(std::size_t total) {
  constexpr std::size_t kEach = 1024;
  const std::size_t count = total / kEach;
  auto** const blocks = static_cast<void**>(calloc(count, sizeof(void*)));
  bool all = blocks != nullptr;
  for (std::size_t i = 0; all && i < count; ++i) {
    blocks[i] = malloc(kEach);
    all = blocks[i] != nullptr;
    if (all) {
      put_words(blocks[i], kEach, i);
    }
  }
  const int error = errno;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; blocks != nullptr && i < count; ++i) {
    wrong += blocks[i] != nullptr ? wrong_words(blocks[i], kEach, i) : 0;
    free(blocks[i]);
  }
  free(blocks);
  EXPECT_EQ(wrong, 0u);
  errno = error;
  return all;
}

TEST(Inner, DISABLED_many_small_blocks) {
  EXPECT_TRUE(small_blocks(100 * kMiB));
}

TEST(Inner, DISABLED_limited_address_space) {
  EXPECT_TRUE(small_blocks(100 * kMiB));
  const bool all = small_blocks(2048 * kMiB);
  const int error = errno;
  EXPECT_FALSE(all);
  EXPECT_EQ(error, ENOMEM);
}

TEST(Inner, DISABLED_locks_everything_when_it_has_begun) {
  void* const block = malloc(24 * kMiB);
  put_words(block, 24 * kMiB, 1);
  ASSERT_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0) << strerror(errno);
  void* const other = malloc(8 * kMiB);
  put_words(other, 8 * kMiB, 2);
  EXPECT_EQ(wrong_words(block, 24 * kMiB, 1), 0u);
  EXPECT_EQ(wrong_words(other, 8 * kMiB, 2), 0u);
  EXPECT_GE(resident_bytes(), 32 * kMiB);
}

TEST(Inner, DISABLED_locks_everything_and_unlocks_it) {
  constexpr std::size_t kBytes = 4 * kMiB;
  void* const pages =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  put_words(pages, kBytes, 1);
  for (const int flags : {0, int{MCL_ONFAULT}, 64, MCL_CURRENT | 64}) {
    EXPECT_EQ(mlockall(flags), -1) << flags;
    EXPECT_EQ(errno, EINVAL) << flags;
  }
  EXPECT_EQ(madvise(pages, kMiB, MADV_DONTNEED), 0) << "these calls locked nothing";
  put_words(pages, kBytes, 1);
  ASSERT_EQ(mlockall(MCL_CURRENT), 0) << strerror(errno);
  EXPECT_EQ(madvise(pages, kBytes, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(wrong_words(pages, kBytes, 1), 0u);
  ASSERT_EQ(syscall(SYS_munlockall), 0) << strerror(errno);
  EXPECT_EQ(madvise(pages, kBytes, MADV_DONTNEED), 0) << strerror(errno);
  EXPECT_EQ(*static_cast<const std::uint64_t*>(pages), 0u);
}

TEST(Inner, DISABLED_locks_more_than_there_is) {
  void* const block = malloc(4 * kBudget);
  put_words(block, 4 * kBudget, 1);
  EXPECT_EQ(mlockall(MCL_CURRENT), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(wrong_words(block, 4 * kBudget, 1), 0u);
}

volatile sig_atomic_t g_bus_errors = 0;

TEST(Inner, DISABLED_has_a_handler_for_sigbus) {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    g_bus_errors = 1;
    static const char text[] = "the handler saw it\n";
    (void)!write(1, text, sizeof(text) - 1);
    _exit(info->si_addr != nullptr ? 42 : 43);
  };
  ASSERT_EQ(sigaction(SIGBUS, &action, nullptr), 0);
  put_words(malloc(8 * kBudget), 8 * kBudget, 1);
  FAIL() << "there was room for all of it";
}

TEST(Inner, DISABLED_has_none) {
  put_words(malloc(8 * kBudget), 8 * kBudget, 1);
  FAIL() << "there was room for all of it";
}

TEST(Inner, DISABLED_closes_all_descriptors) {
  void* const block = malloc(4 * kBudget);
  put_words(block, 4 * kBudget, 1);
  for (int fd = 3; fd < 1024; ++fd) {
    close(fd);
  }
  EXPECT_EQ(wrong_words(block, 4 * kBudget, 1), 0u);
  EXPECT_EQ(close_range(3, ~0U, 0), 0);
  put_words(block, 4 * kBudget, 2);
  EXPECT_EQ(wrong_words(block, 4 * kBudget, 2), 0u);
  closefrom(3);
  EXPECT_EQ(wrong_words(block, 4 * kBudget, 2), 0u);
  for (int fd = 3; fd < 2048; ++fd) {  // By their numbers, too.
    syscall(SYS_close, fd);
    syscall(SYS_dup2, 0, fd);
    syscall(SYS_close, fd);
  }
  EXPECT_EQ(syscall(SYS_close_range, 3, ~0U, 0), 0);
  EXPECT_EQ(wrong_words(block, 4 * kBudget, 2), 0u);
}

// tests/unit/run_process_test.cpp, which has the run's page, starts these two.

TEST(Inner, DISABLED_works_in_a_run) {
  auto* const block = static_cast<std::byte*>(malloc(2 * kBudget));
  put_words(block, 2 * kBudget, 1);
  EXPECT_EQ(wrong_words(block, 2 * kBudget, 1), 0u);
  usleep(300'000);  // Waits until its counters are published.
  EXPECT_EQ(wrong_words(block, 2 * kBudget, 1), 0u);
}

TEST(Inner, DISABLED_forks_in_a_run) {
  auto* const block = static_cast<std::byte*>(malloc(2 * kBudget));
  put_words(block, 2 * kBudget, 1);
  const pid_t child = fork();
  if (child == 0) {
    _exit(wrong_words(block, kBudget / 2, 1) == 0 && usleep(300'000) == 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- The results of the inner cases ------------------------------------------------------------

std::string small_block_tier() {
  return std::string("TIERMEM_NVME=") + (getenv("TMPDIR") != nullptr ? getenv("TMPDIR") : "/tmp") +
         ":16M";
}

TEST(Trouble, a_budget_far_below_the_need_of_small_blocks_is_enough) {
  const End end = run_inner("many_small_blocks", {"TIERMEM_DRAM=2M"});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Trouble, limited_address_space_is_malloc_returning_null) {
  const End end = run_inner("limited_address_space", {}, "ulimit -v 2000000");
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Trouble, a_program_that_locks_its_memory_has_it_in_memory) {
  const End end = run_inner("locks_everything_when_it_has_begun", {});
  EXPECT_TRUE(passed(end)) << end.output;
  const End before = run_inner("locks_everything_when_it_has_begun", {"TIERMEM_START=1G"});
  EXPECT_TRUE(passed(before)) << before.output;
}

TEST(Trouble, memory_that_a_program_locks_and_unlocks_is_as_the_kernel_has_it) {
  const End end = run_inner("locks_everything_and_unlocks_it", {});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Trouble, locking_more_than_the_budget_is_refused) {
  const End end = run_inner("locks_more_than_there_is", {});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Trouble, no_room_anywhere_is_sigbus_with_a_reason_in_the_log) {
  const End end = run_inner("has_none", {small_block_tier(), "TIERMEM_LOG=error"});
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGBUS) << end.output;
  EXPECT_NE(end.output.find("no room for"), std::string::npos) << end.output;
  EXPECT_NE(end.output.find("block tier"), std::string::npos) << end.output;
}

TEST(Trouble, a_handler_of_the_program_gets_the_sigbus) {
  const End end = run_inner("has_a_handler_for_sigbus", {small_block_tier()});
  EXPECT_TRUE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 42) << end.output;
  EXPECT_NE(end.output.find("the handler saw it"), std::string::npos);
}

TEST(Trouble, a_program_that_closes_all_descriptors_keeps_its_bytes) {
  const End end = run_inner("closes_all_descriptors", {});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Trouble, nothing_is_written_to_the_programs_output) {
  const End end = run_inner("many_small_blocks", {"TIERMEM_LOG=off"});
  EXPECT_TRUE(passed(end)) << end.output;
  EXPECT_EQ(end.output.find("tiermem["), std::string::npos) << end.output;
}

TEST(Trouble, settings_that_are_wrong_leave_the_program_untiered_and_say_so) {
  const End end = run_inner("many_small_blocks", {"TIERMEM_DRAM=plenty", "TIERMEM_LOG=error"});
  EXPECT_TRUE(passed(end)) << end.output;
}

}  // namespace
}  // namespace tiermem::test

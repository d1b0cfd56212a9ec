// Frames of mapped windows after a fork, while a child shares their pages. They leave with the
// bytes of their own process, and the child keeps the bytes as of the fork. On real pages.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "mapped_frame.hpp"
#include "os/host_memory.hpp"
#include "support/locked_pages.hpp"

namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE
thread_local unsigned t_refused_collapses = 0;

}  // namespace

// Compaction holds a page of each of the next `t_refused_collapses` huge pages.
extern "C" int madvise(void* address, size_t length, int advice) noexcept {
  if (advice == kCollapse && t_refused_collapses > 0) {
    --t_refused_collapses;
    errno = EAGAIN;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_madvise, address, length, advice));
}

namespace tiermem {
namespace {

class ForkedFrame : public MappedFrame {};
INSTANTIATE_TEST_SUITE_P(By, ForkedFrame, ::testing::Values(Mechanism::uffd_move, Mechanism::copy),
                         mechanism_name);

// A child that has its parent's windows until it is told to end. It reports whether they hold the
// bytes as of the fork.
class Sharer {
 public:
  Sharer(const std::byte* window, std::uint64_t what) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      char end = 0;
      close(ends_[1]);
      _exit(read(ends_[0], &end, 1) == 0 && holds(window, MovedFrame::kBytes, what) ? 0 : 1);
    }
  }
  ~Sharer() { end(); }
  void end() {
    if (child_ <= 0) {
      return;
    }
    close(ends_[0]);
    close(ends_[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0) << "the child saw other bytes than those of the fork";
    child_ = -1;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST_P(ForkedFrame, pages_shared_with_a_child_leave_by_a_copy) {
  for (const bool lives : {true, false}) {
    ASSERT_TRUE(space->restore(frame, window).ok());
    fill(window, kBytes, 5);
    EXPECT_FALSE(space->withdraws_slowly(frame));
    Sharer child(window, 5);
    space->note_fork();
    EXPECT_EQ(space->withdraws_slowly(frame), !copies());
    if (!lives) {
      child.end();
    }
    const Status left = space->withdraw(frame, window);
    ASSERT_TRUE(left.ok()) << left.message();
    EXPECT_TRUE(holds(home, kBytes, 5));
    ASSERT_TRUE(space->restore(frame, window).ok());
    EXPECT_FALSE(space->withdraws_slowly(frame)) << "it came in after the fork";
    fill(window, kBytes, 6);
    ASSERT_TRUE(space->withdraw(frame, window).ok());
    EXPECT_TRUE(holds(home, kBytes, 6));
  }
  EXPECT_EQ(space->counters().unshared, copies() ? 0U : 2U);
  EXPECT_EQ(space->counters().withdrawals_refused, 0U);
}

// This process has written some pages, so they are its own again. They move, up to the first shared
// page.
TEST_P(ForkedFrame, an_extent_that_is_shared_in_part_leaves_whole) {
  ASSERT_TRUE(space->restore(frame, window).ok());
  fill(window, kBytes, 7);
  const Sharer child(window, 7);
  space->note_fork();
  std::memset(window, 8, kBytes / 4);
  std::memset(window + kBytes / 2, 8, 4096);
  ASSERT_TRUE(space->withdraw(frame, window).ok());
  std::vector<std::byte> bytes(kBytes);
  std::byte* const expected = bytes.data();
  fill(expected, kBytes, 7);
  std::memset(expected, 8, kBytes / 4);
  std::memset(expected + kBytes / 2, 8, 4096);
  EXPECT_EQ(std::memcmp(home, expected, kBytes), 0);
}

// The child ends after a part of a huge page has been copied. The rest then belongs to this process
// alone, but the kernel still does not move the page as it is.
TEST_P(ForkedFrame, an_extent_that_was_shared_while_half_of_it_was_written_leaves_whole) {
  ASSERT_TRUE(space->restore(frame, window).ok());
  fill(window, kBytes, 7);
  Sharer child(window, 7);
  space->note_fork();
  std::memset(window, 8, kBytes / 4);
  child.end();
  std::memset(window + kBytes / 2, 9, kBytes / 4);
  t_refused_collapses = 5;
  const Status left = space->withdraw(frame, window);
  ASSERT_TRUE(left.ok()) << left.message();
  EXPECT_EQ(t_refused_collapses, copies() ? 5U : 0U);
  t_refused_collapses = 0;
  std::vector<std::byte> bytes(kBytes);
  fill(bytes.data(), kBytes, 7);
  std::memset(bytes.data(), 8, kBytes / 4);
  std::memset(bytes.data() + kBytes / 2, 9, kBytes / 4);
  EXPECT_EQ(std::memcmp(home, bytes.data(), kBytes), 0);
}

// The device would still write into the original page after the copy.
TEST_P(ForkedFrame, a_page_locked_since_the_fork_is_not_copied) {
  if (copies()) {
    GTEST_SKIP() << "mremap takes pages that are locked, too";
  }
  ASSERT_TRUE(space->restore(frame, window).ok());
  fill(window, kBytes, 9);
  const Sharer child(window, 9);
  space->note_fork();
  test::LockedPages locked(window + kBytes / 2, 4096);
  if (!locked.why_not().empty()) {
    ASSERT_TRUE(space->withdraw(frame, window).ok());
    GTEST_SKIP() << locked.why_not();
  }
  EXPECT_EQ(space->withdraw(frame, window).code(), Code::busy);
  EXPECT_TRUE(holds(window, kBytes, 9));
  locked.release();
  Status left = space->withdraw(frame, window);
  for (int i = 0; i < 1000 && !left.ok(); ++i) {  // Completion the ring takes a moment.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    left = space->withdraw(frame, window);
  }
  ASSERT_TRUE(left.ok()) << left.message();
  EXPECT_TRUE(holds(home, kBytes, 9));
}

TEST_P(ForkedFrame, a_hole_among_shared_pages_is_filled_by_who_reads_faults) {
  ASSERT_TRUE(space->restore(frame, window).ok());
  fill(window, kBytes, 10);
  const Sharer child(window, 10);
  space->note_fork();
  ASSERT_EQ(madvise(window + 40960, 4096, MADV_DONTNEED), 0);
  std::atomic<unsigned> own{0}, others{0};
  std::thread reader([&] {
    Fault fault;
    while (space->next_fault(-1, fault)) {
      ++(space->is_own(fault) ? own : others);
      space->fill_hole(fault.address);
    }
  });
  const Status left = space->withdraw(frame, window);
  space->stop_faults();
  reader.join();
  ASSERT_TRUE(left.ok()) << left.message();
  EXPECT_EQ(home[40960], std::byte{0});
  EXPECT_EQ(home[45055], std::byte{0});
  EXPECT_EQ(others, 0U);
  if (space->facts().userfault.source != UserfaultSource::user_mode && !copies()) {
    EXPECT_EQ(own, 1U);
  }
  std::byte expected[40960];
  fill(expected, 40960, 10);
  EXPECT_EQ(std::memcmp(home, expected, 40960), 0);
}

TEST_P(ForkedFrame, a_writer_that_runs_across_forks_loses_no_write) {
  ASSERT_TRUE(space->restore(frame, window).ok());
  std::memset(window, 0, kBytes);
  std::atomic<bool> stop{false};
  std::uint64_t rounds = 0;
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::uint64_t at = 0; at < kBytes; at += 4096) {
        std::uint64_t value = 0;
        std::memcpy(&value, window + at, 8);
        ++value;
        std::memcpy(window + at, &value, 8);
      }
      ++rounds;
    }
  });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      usleep(2000);
      _exit(0);
    }
    space->note_fork();
    const Status left = space->withdraw(frame, window);
    ASSERT_TRUE(left.ok()) << left.message();
    ASSERT_TRUE(space->restore(frame, window).ok());
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }
  stop = true;
  writer.join();
  for (std::uint64_t at = 0; at < kBytes; at += 4096) {
    std::uint64_t value = 0;
    std::memcpy(&value, window + at, 8);
    EXPECT_EQ(value, rounds) << "at " << at;
  }
  ASSERT_TRUE(space->withdraw(frame, window).ok());
}

}  // namespace
}  // namespace tiermem

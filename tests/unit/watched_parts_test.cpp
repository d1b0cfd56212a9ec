// Parts of extents that arrive watched: unwritten ones leave at once, and written ones never do. On
// real pages and threads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "dram_fixture.hpp"
#include "in_child.hpp"
#include "os/host_memory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 64 * kKiB;
constexpr std::uint64_t kPageBytes = kSmallestExtent;

class WatchedParts : public ::testing::Test {
 protected:
  void SetUp() override { make(true); }
  void make(bool watch) {
    HostSpaceOptions options = small_options(16 * kMiB);
    options.watch = watch;
    options.follow_forks = true;
    auto made = HostSpace::create(options);
    ASSERT_TRUE(made.ok()) << made.message();
    space = std::move(*made);
    if (watch && !space->facts().watches) {
      ASSERT_TRUE(space->facts().watch_reason[0] != 0 ||
                  space->facts().mapped != Mechanism::uffd_move)
          << "the kernel was not asked";
      GTEST_SKIP() << space->facts().watch_reason;
    }
    at = *space->reserve_window(2 * kExtent, kExtent, true);
    fill(data.data(), kExtent, 7);
  }
  FrameId bring(PageMask pages, bool watched = true, std::byte* where = nullptr) {
    const FrameId frame = space->memory().acquire_parts(
        {Pool::small, kExtent, 0}, static_cast<unsigned>(std::popcount(pages)));
    EXPECT_TRUE(
        space->insert(frame, where == nullptr ? at : where, data.data(), pages, watched).ok());
    return frame;
  }
  bool drop(FrameId frame, std::byte* where = nullptr) {
    std::array<AddressSpace::Unchanged, 1> frames{{{frame, where == nullptr ? at : where}}};
    space->drop_unchanged(frames);
    return frames[0].dropped;
  }
  static bool empty(std::byte* from, std::uint64_t bytes) {
    return host::leading_bytes(from, bytes, false) == bytes;
  }
  bool same(std::uint64_t page) const {
    return std::memcmp(at + page * kPageBytes, data.data() + page * kPageBytes, kPageBytes) == 0;
  }

  std::unique_ptr<HostSpace> space;
  std::byte* at = nullptr;
  std::vector<std::byte> data = std::vector<std::byte>(kExtent);
};

TEST_F(WatchedParts, those_that_were_only_read_leave_without_a_home_or_a_trim) {
  const std::uint64_t before = space->memory().usage().in_use;
  const FrameId frame = bring(0b1000110);
  ASSERT_TRUE(space->may_be_unchanged(frame));
  EXPECT_TRUE(same(1) && same(2) && same(6));
  EXPECT_TRUE(drop(frame));
  EXPECT_TRUE(empty(at, kExtent));
  space->memory().return_frame(frame);
  EXPECT_EQ(space->memory().usage().in_use, before) << "nothing waits for a trim";
  EXPECT_EQ(space->counters().unchanged_out, 1u);
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST_F(WatchedParts, a_write_waits_until_it_is_allowed_and_stays) {
  const FrameId frame = bring(0b11);
  std::atomic<bool> wrote{false};
  std::thread writer([&] {
    at[kPageBytes + 5] = std::byte{99};
    wrote = true;
  });
  Fault fault;
  ASSERT_TRUE(space->next_fault(10'000, fault));
  EXPECT_TRUE(fault.watched);
  EXPECT_TRUE(fault.write);
  EXPECT_EQ(fault.address, at + kPageBytes + (fault.address - at) % kPageBytes);
  EXPECT_FALSE(wrote);
  space->allow_writes(at, kExtent);
  writer.join();
  at[7] = std::byte{98};  // A page of the same extent, so the write does not wait.
  EXPECT_FALSE(drop(frame));
  EXPECT_FALSE(space->may_be_unchanged(frame)) << "it is not checked again";
  ASSERT_TRUE(space->withdraw(frame, at).ok());
  EXPECT_EQ(space->bytes_at(frame, at)[kPageBytes + 5], std::byte{99});
  EXPECT_EQ(space->bytes_at(frame, at)[7], std::byte{98});
  EXPECT_EQ(space->counters().watched_writes, 1u);
}

// Its window may be closed for stores, and the program may have emptied pages. The bytes are the
// file's in any case.
TEST_F(WatchedParts, those_of_a_read_only_file_leave_together_with_what_closes_them) {
  auto window = space->reserve_read_only_window(2 * kExtent, kExtent, true);
  ASSERT_TRUE(window.ok()) << window.message();
  ASSERT_TRUE(space->takes_parts(kExtent, true));
  std::byte* const file = *window;
  const auto store = [](std::byte* to) {
    const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const int error = ::read(zeros, to, 1) == 1 ? 0 : errno;
    ::close(zeros);
    return error;
  };
  for (int life = 0; life < 2; ++life) {
    const FrameId frame = bring(0b1011, true, file);
    EXPECT_FALSE(space->refuses_stores(file)) << "the extent before was closed";
    int error = 0;
    std::thread writer([&] { error = store(file + kPageBytes); });
    Fault fault;
    ASSERT_TRUE(space->next_fault(10'000, fault));
    EXPECT_TRUE(fault.watched);
    space->refuse_store(fault, file, kExtent);
    writer.join();
    EXPECT_EQ(error, EFAULT);
    ASSERT_TRUE(space->memory().charge_parts(frame, 1));
    ASSERT_TRUE(space->insert(frame, file, data.data(), 0b100, true).ok()) << "into a closed one";
    EXPECT_EQ(std::memcmp(file, data.data(), 4 * kPageBytes), 0);
    EXPECT_EQ(store(file + 2 * kPageBytes), EFAULT);
    ASSERT_EQ(::madvise(file, kPageBytes, MADV_DONTNEED), 0);
    EXPECT_TRUE(space->may_be_unchanged(frame));
    EXPECT_TRUE(drop(frame, file));
    EXPECT_TRUE(empty(file, kExtent));
    space->memory().return_frame(frame);
  }
  EXPECT_TRUE(space->memory().test_consistent());
}

// The write began before the extent was dropped, and is answered afterwards.
TEST_F(WatchedParts, who_waits_to_write_when_it_leaves_touches_an_absent_page) {
  const FrameId frame = bring(0b1);
  std::thread writer([&] { at[5] = std::byte{99}; });
  Fault fault;
  ASSERT_TRUE(space->next_fault(10'000, fault));
  ASSERT_TRUE(fault.watched);
  EXPECT_TRUE(drop(frame));
  space->allow_writes(at, kExtent);
  ASSERT_TRUE(space->next_fault(10'000, fault));
  EXPECT_FALSE(fault.watched);
  EXPECT_TRUE(fault.write);
  ASSERT_TRUE(space->insert(frame, at, data.data(), 0b1, false).ok());
  writer.join();
  EXPECT_EQ(at[5], std::byte{99});
  EXPECT_EQ(at[6], data[6]);
  ASSERT_TRUE(space->unmap(frame, at).ok());
}

// A system call writes the page on the program's behalf.
TEST_F(WatchedParts, the_kernel_waits_like_the_program) {
  const FrameId frame = bring(0b1);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], "abcd", 4), 4);
  std::thread reader([&] { EXPECT_EQ(read(ends[0], at + 100, 4), 4); });
  Fault fault;
  ASSERT_TRUE(space->next_fault(10'000, fault));
  EXPECT_TRUE(fault.watched);
  space->allow_writes(at, kExtent);
  reader.join();
  EXPECT_FALSE(drop(frame));
  EXPECT_EQ(std::memcmp(at + 100, "abcd", 4), 0);
  ASSERT_TRUE(space->unmap(frame, at).ok());
  close(ends[0]);
  close(ends[1]);
}

// The page reads as zeros now. If it counted as unchanged, its old bytes would return.
TEST_F(WatchedParts, a_page_that_the_program_emptied_is_not_unchanged) {
  const FrameId frame = bring(0b11);
  ASSERT_EQ(madvise(at, kPageBytes, MADV_DONTNEED), 0);
  EXPECT_FALSE(drop(frame));
  EXPECT_TRUE(same(1));
  ASSERT_TRUE(space->withdraw(frame, at).ok());
  EXPECT_EQ(space->bytes_at(frame, at)[0], std::byte{0});
}

TEST_F(WatchedParts, each_of_many_is_judged_by_itself) {
  const FrameId one = bring(0b111);
  const FrameId other = bring(0b101, true, at + kExtent);
  space->allow_writes(at, kExtent);
  at[0] = std::byte{1};
  std::array<AddressSpace::Unchanged, 2> frames{{{one, at}, {other, at + kExtent}}};
  space->drop_unchanged(frames);
  EXPECT_FALSE(frames[0].dropped);
  EXPECT_TRUE(frames[1].dropped);
  EXPECT_EQ(at[0], std::byte{1});
  EXPECT_TRUE(empty(at + kExtent, kExtent));
  ASSERT_TRUE(space->unmap(one, at).ok());
}

// After a fork the child reads its parent's bytes, even if either process drops or writes the
// pages.
TEST_F(WatchedParts, after_a_fork_both_have_their_own) {
  const FrameId frame = bring(0b11);
  space->note_fork();
  EXPECT_TRUE(in_child([&] {
    if (!space->follow_fork().ok() || !same(0) || !same(1)) {
      return false;
    }
    at[0] = std::byte{1};  // The child's pages are not watched.
    return !space->may_be_unchanged(frame) && !drop(frame) && at[0] == std::byte{1} && same(1);
  }));
  EXPECT_TRUE(space->may_be_unchanged(frame));
  EXPECT_TRUE(drop(frame)) << "and need not be copied first";
  EXPECT_TRUE(empty(at, kExtent));
}

TEST_F(WatchedParts, where_it_cannot_be_had_nothing_is_watched) {
  make(false);
  EXPECT_FALSE(space->facts().watches);
  const FrameId frame = bring(0b1);
  EXPECT_FALSE(space->may_be_unchanged(frame));
  EXPECT_FALSE(drop(frame));
  at[0] = std::byte{1};
  ASSERT_TRUE(space->unmap(frame, at).ok());
}

// Makes the kernel refuse these calls of the calling thread.
bool refuse(std::initializer_list<std::uint32_t> calls) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const std::uint32_t call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The program has emptied a page before. The others are still there, and not taken for gone.
TEST_F(WatchedParts, pages_of_a_file_that_the_kernel_does_not_take_stay) {
  EXPECT_TRUE(in_child([&] {
    make(true);
    auto window = space->reserve_read_only_window(kExtent, kExtent, true);
    if (!window.ok()) {
      return false;
    }
    const FrameId frame = bring(0b101, true, *window);
    if (::madvise(*window, kPageBytes, MADV_DONTNEED) != 0 ||
        !refuse({SYS_madvise, SYS_process_madvise})) {
      return false;
    }
    return !drop(frame, *window) &&
           std::memcmp(*window + 2 * kPageBytes, data.data() + 2 * kPageBytes, kPageBytes) == 0;
  }));
}

TEST_F(WatchedParts, what_the_kernel_does_not_take_stays) {
  const FrameId frame = bring(0b101);
  EXPECT_TRUE(in_child([&] {
    // A child's inherited pages are not watched, so it creates its own.
    make(true);
    const FrameId its_own = bring(0b101);
    if (!refuse({SYS_madvise, SYS_process_madvise})) {
      return true;
    }
    return !drop(its_own) && same(0) && same(2) && space->withdraw(its_own, at).ok();
  }));
  ASSERT_TRUE(space->unmap(frame, at).ok());
}

// WriteTracking requires the scan of page tables.
TEST_F(WatchedParts, a_kernel_that_does_not_protect_is_told_of) {
  EXPECT_TRUE(in_child([&] {
    std::vector<sock_filter> filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xC018AA06, 0, 1),  // UFFDIO_WRITEPROTECT
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      return true;
    }
    auto made = HostSpace::create(small_options(16 * kMiB));
    return made.ok() && !(*made)->facts().watches &&
           std::strstr((*made)->facts().watch_reason, "UFFDIO_WRITEPROTECT") != nullptr;
  }));
}

// Writers and readers use all pages while the extent arrives watched, is dropped, moved, and
// arrives again. No write is lost.
TEST_F(WatchedParts, running_writers_lose_no_write) {
  constexpr unsigned kPages = 4;
  std::atomic<bool> stop{false};
  std::array<std::atomic<std::uint64_t>, kPages> wrote{};
  std::vector<std::byte> slot(kExtent);
  std::memset(slot.data(), 0, slot.size());
  std::vector<std::thread> writers;
  for (unsigned page = 0; page < kPages; ++page) {
    writers.emplace_back([&, page] {
      auto* const word = reinterpret_cast<std::uint64_t*>(at + page * kPageBytes);
      std::uint64_t n = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const std::uint64_t seen = std::atomic_ref(*word).load(std::memory_order_relaxed);
        ASSERT_EQ(seen, n) << "page " << page;
        if (page % 2 == 0 || n % 4 == 0) {
          std::atomic_ref(*word).store(++n, std::memory_order_relaxed);
          wrote[page].store(n, std::memory_order_relaxed);
        }
        std::this_thread::yield();
      }
    });
  }
  std::thread answers([&] {
    Fault fault;
    while (space->next_fault(-1, fault)) {
      fault.watched ? space->allow_writes(at, kExtent) : space->wake(fault.address);
    }
  });
  unsigned dropped = 0;
  for (int round = 0; round < 3000; ++round) {
    const FrameId frame = space->memory().acquire_parts({Pool::small, kExtent, 0}, kPages);
    ASSERT_TRUE(space->insert(frame, at, slot.data(), (1U << kPages) - 1, true).ok());
    space->wake(at);
    if (round % 3 != 0) {
      std::this_thread::yield();
    }
    if (drop(frame)) {
      ++dropped;
    } else {
      ASSERT_TRUE(space->withdraw(frame, at).ok());
      std::memcpy(slot.data(), space->bytes_at(frame, at), kPages * kPageBytes);
    }
    space->memory().return_frame(frame);
    (void)space->memory().begin_trim(1);
    space->memory().run_trim();
    space->memory().finish_trim();
  }
  const FrameId last = space->memory().acquire_parts({Pool::small, kExtent, 0}, kPages);
  ASSERT_TRUE(space->insert(last, at, slot.data(), (1U << kPages) - 1, false).ok());
  stop = true;
  for (std::thread& writer : writers) {
    writer.join();
  }
  space->stop_faults();
  answers.join();
  for (unsigned page = 0; page < kPages; ++page) {
    std::uint64_t there = 0;
    std::memcpy(&there, at + page * kPageBytes, sizeof(there));
    EXPECT_EQ(there, wrote[page].load()) << "page " << page;
  }
  EXPECT_GT(dropped, 0u);
  ASSERT_TRUE(space->unmap(last, at).ok());
}

}  // namespace
}  // namespace tiermem

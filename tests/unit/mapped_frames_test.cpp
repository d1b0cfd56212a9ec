// Frames of mapped windows: withdrawn with all bytes or not at all, and restored whatever obstructs
// them. On real pages.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "mapped_frame.hpp"
#include "os/host_memory.hpp"
#include "support/directory.hpp"
#include "support/locked_pages.hpp"
#include "uncounted_move.hpp"

namespace tiermem {
namespace {

TEST_P(MappedFrame, calls_out_of_turn_are_refused) {
  EXPECT_EQ(space->withdraw(frame, window).code(), Code::internal) << "it is not there";
  ASSERT_TRUE(space->restore(frame, window).ok());
  EXPECT_EQ(space->restore(frame, window).code(), Code::internal) << "it is there already";
  EXPECT_EQ(space->withdraw(frame, window + kBytes).code(), Code::internal) << "but not there";
  ASSERT_TRUE(space->withdraw(frame, window).ok());
}

// The mover itself restores a single huge page. Many small pages would delay it.
TEST_P(MappedFrame, one_huge_page_is_restored_at_once_and_small_ones_are_not) {
  const bool huge = host::huge_bytes(home, kBytes).value_or(0) == kBytes;
  EXPECT_EQ(space->restores_at_once(frame, window), huge && !copies());
  ASSERT_TRUE(space->restore(frame, window).ok());
  ASSERT_EQ(mprotect(window, 4096, PROT_READ), 0);
  ASSERT_EQ(mprotect(window, 4096, PROT_READ | PROT_WRITE), 0);
  ASSERT_TRUE(space->withdraw(frame, window).ok());
  EXPECT_FALSE(space->restores_at_once(frame, window));
}

// The locked page is in the middle, so some pages have moved before the kernel refuses.
TEST_P(MappedFrame, a_locked_page_keeps_the_whole_frame_in_its_window) {
  if (copies()) {
    GTEST_SKIP() << "mremap takes pages that are locked, too";
  }
  for (const bool split : {false, true}) {
    ASSERT_TRUE(space->restore(frame, window).ok());
    fill(window, kBytes, 3);
    if (split) {  // With small pages, the first half could leave.
      ASSERT_EQ(mprotect(window + kBytes / 2, 4096, PROT_READ), 0);
      ASSERT_EQ(mprotect(window + kBytes / 2, 4096, PROT_READ | PROT_WRITE), 0);
    }
    test::LockedPages locked(window + kBytes / 2, 4096);
    if (!locked.why_not().empty()) {
      ASSERT_TRUE(space->withdraw(frame, window).ok());
      GTEST_SKIP() << locked.why_not();
    }
    const Status busy = space->withdraw(frame, window);
    EXPECT_EQ(busy.code(), Code::busy) << busy.message();
    EXPECT_TRUE(holds(window, kBytes, 3));
    locked.release();
    Status left = space->withdraw(frame, window);
    for (int i = 0; i < 1000 && !left.ok(); ++i) {  // Completion the ring takes a moment.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      left = space->withdraw(frame, window);
    }
    ASSERT_TRUE(left.ok()) << left.message();
    EXPECT_TRUE(holds(home, kBytes, 3));
  }
  EXPECT_GE(space->counters().withdrawals_refused, 2U);
}

TEST_P(MappedFrame, a_locked_home_is_copied_in) {
  {
    test::LockedPages locked(home + kBytes / 2, 4096);
    if (!locked.why_not().empty()) {
      GTEST_SKIP() << locked.why_not();
    }
    ASSERT_TRUE(space->restore(frame, window).ok());
    EXPECT_TRUE(holds(window, kBytes, 1));
  }
  fill(window, kBytes, 4);
  ASSERT_TRUE(space->withdraw(frame, window).ok());
  EXPECT_TRUE(holds(home, kBytes, 4));
}

TEST_P(MappedFrame, poison_is_in_nobodys_way) {
  ASSERT_TRUE(space->poison(window));
  ASSERT_TRUE(space->poison(window + kBytes - 1));
  ASSERT_TRUE(space->restore(frame, window).ok());
  EXPECT_TRUE(holds(window, kBytes, 1));
  ASSERT_TRUE(space->withdraw(frame, window).ok());
  ASSERT_TRUE(space->poison(window + 4096));
  space->clear_poison(window, kBytes);
  space->clear_poison(window, kBytes);
  ASSERT_TRUE(space->restore(frame, window).ok());
  ASSERT_TRUE(space->withdraw(frame, window).ok());
}

// A page that the program has emptied leaves as zeros.
TEST_P(MappedFrame, an_emptied_page_is_filled_with_zeros_and_the_rest_is_kept) {
  ASSERT_TRUE(space->restore(frame, window).ok());
  ASSERT_EQ(madvise(window + 8192, 4096, MADV_DONTNEED), 0);
  ASSERT_TRUE(space->withdraw(frame, window).ok());
  EXPECT_EQ(home[8192], std::byte{0});
  EXPECT_EQ(home[12287], std::byte{0});
  ASSERT_TRUE(space->restore(frame, window).ok());
  EXPECT_EQ(space->counters().withdrawals_refused, 0U);
  ASSERT_EQ(madvise(window + 8192, 4096, MADV_DONTNEED), 0);
  space->fill_hole(window + 8192);
  EXPECT_EQ(window[8192], std::byte{0});
  std::byte expected[8192];
  fill(expected, 8192, 1);
  EXPECT_EQ(std::memcmp(window, expected, 8192), 0);
  space->fill_hole(window);  // A page is present, so this changes nothing.
  EXPECT_EQ(std::memcmp(window, expected, 8192), 0);
}

// The unmapped page cannot be filled. The pages around it are restored, and the log names it.
TEST_P(MappedFrame, a_page_of_the_window_that_the_program_has_unmapped_is_left_out_and_named) {
  const test::Directory directory;
  ASSERT_TRUE(log_open(LogLevel::error, directory.path() + "/log"));
  std::byte* const gone = window + 8192;
  ASSERT_EQ(munmap(gone, 4096), 0);
  const std::byte* const its_home = space->bytes_at(frame, window) + 8192;
  EXPECT_TRUE(space->restore(frame, window).ok());
  log_close();
  std::ifstream file(directory.path() + "/log");
  const std::string log{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(log.find(fmt::format("at {} is not shown", static_cast<void*>(gone))),
            std::string::npos)
      << log;
  EXPECT_NE(log.find(fmt::format("missing at {};", static_cast<const void*>(its_home))),
            std::string::npos)
      << log;
  std::vector<std::byte> expected(kBytes);
  fill(expected.data(), kBytes, 1);
  EXPECT_EQ(std::memcmp(window, expected.data(), 8192), 0);
  EXPECT_EQ(std::memcmp(gone + 4096, expected.data() + 12288, kBytes - 12288), 0);
}

// A writer increments a counter in each page of the window, in rounds, while the frame leaves and
// returns.
void write_while_it_moves(HostSpace& space, FrameId frame, std::byte* window, std::uint64_t bytes,
                          int moves) {
  ASSERT_TRUE(space.restore(frame, window).ok());
  std::memset(window, 0, bytes);
  std::atomic<bool> stop{false};
  std::uint64_t rounds = 0;
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::uint64_t at = 0; at < bytes; at += 4096) {
        std::uint64_t value = 0;
        std::memcpy(&value, window + at, 8);
        ++value;
        std::memcpy(window + at, &value, 8);
      }
      ++rounds;
    }
  });
  Status left;
  for (int i = 0; i < moves && left.ok(); ++i) {
    left = space.withdraw(frame, window);
    if (i % 2 == 0) {
      std::this_thread::yield();  // Lets the writer touch the absent pages.
    }
    if (left.ok()) {
      EXPECT_TRUE(space.restore(frame, window).ok());
    }
  }
  EXPECT_TRUE(left.ok()) << left.message();
  for (std::uint64_t at = 0; at < bytes && !left.ok(); at += 4096) {
    space.fill_hole(window + at);  // Lets the writer end.
  }
  stop = true;
  writer.join();
  for (std::uint64_t at = 0; at < bytes; at += 4096) {
    std::uint64_t value = 0;
    std::memcpy(&value, window + at, 8);
    EXPECT_EQ(value, rounds) << "at " << at;
  }
  EXPECT_TRUE(space.withdraw(frame, window).ok());
}

TEST_P(MappedFrame, a_running_writer_loses_no_write) {
  write_while_it_moves(*space, frame, window, kBytes, 300);
}

// The program has protected some pages. UFFDIO_MOVE refuses these, and they move page by page.
TEST_P(MappedFrame, frame_with_protected_pages_leaves_and_comes_back_with_its_bytes) {
  for (const int protection : {PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE | PROT_EXEC}) {
    fill(home, kBytes, 3);
    ASSERT_TRUE(space->restore(frame, window).ok());
    const std::size_t some[] = {0, 4096, 16384, kBytes - 4096};
    for (const std::size_t page : some) {
      ASSERT_EQ(mprotect(window + page, 4096, protection), 0);
    }
    ASSERT_EQ(madvise(window + 16384, 4096, MADV_DONTNEED), 0);
    const Status left = space->withdraw(frame, window);
    ASSERT_TRUE(left.ok()) << left.message();
    std::vector<std::byte> expected(kBytes);
    fill(expected.data(), kBytes, 3);
    std::memset(expected.data() + 16384, 0, 4096);
    EXPECT_EQ(std::memcmp(home, expected.data(), kBytes), 0);
    EXPECT_EQ(host::leading_bytes(window, kBytes, false), kBytes) << "a page was left behind";
    std::memset(home, 7, 8);  // The home is writable again.
    std::memset(expected.data(), 7, 8);
    ASSERT_TRUE(space->restore(frame, window).ok());
    for (const std::size_t page : some) {
      ASSERT_EQ(mprotect(window + page, 4096, PROT_READ | PROT_WRITE), 0);
    }
    EXPECT_EQ(std::memcmp(window, expected.data(), kBytes), 0);
    std::memset(window, 8, kBytes);
    ASSERT_TRUE(space->withdraw(frame, window).ok());
  }
  EXPECT_EQ(space->counters().withdrawals_refused, 0U);
}

/// A frame of small pages, which the kernel moves in a batch.
class SmallMappedFrame : public MappedFrame {
 protected:
  static constexpr std::uint64_t kSmall = 64 * kKiB;
  void SetUp() override {
    MappedFrame::SetUp();
    if (IsSkipped()) {
      return;
    }
    auto reserved = space->reserve_window(kSmall, kSmall, true);
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    at = *reserved;
    small = space->memory().acquire_frame({Pool::small, kSmall, 0});
    ASSERT_TRUE(space->memory().populate(small, false, nullptr).ok());
    its_home = space->bytes_at(small, at);
    fill(its_home, kSmall, 1);
  }
  std::byte* at = nullptr;
  FrameId small;
  std::byte* its_home = nullptr;
};

// Pages 1, 2 and 5 arrive, are withdrawn, and are restored. The others stay absent.
TEST_P(SmallMappedFrame, parts_come_and_go_with_their_bytes_and_their_charge) {
  constexpr std::uint64_t kPageBytes = kSmallestExtent;
  ASSERT_TRUE(space->takes_parts(kSmall, false));
  EXPECT_FALSE(space->takes_parts(kBytes, false)) << "huge pages";
  const std::uint64_t before = space->memory().usage().in_use;
  const FrameId parts = space->memory().acquire_parts({Pool::small, kSmall, 0}, 2);
  ASSERT_TRUE(parts.valid());
  EXPECT_EQ(space->memory().usage().in_use, before + 2 * kPageBytes);
  std::vector<std::byte> data(kSmall);
  fill(data.data(), kSmall, 4);
  ASSERT_TRUE(space->insert(parts, at, data.data(), 0b110, false).ok());
  EXPECT_EQ(std::memcmp(at + kPageBytes, data.data() + kPageBytes, 2 * kPageBytes), 0);
  EXPECT_EQ(space->insert(parts, at, data.data(), 0b100, false).code(), Code::internal)
      << "it is there";
  ASSERT_TRUE(space->memory().charge_parts(parts, 1));
  ASSERT_TRUE(space->insert(parts, at, data.data(), 0b100000, false).ok());
  at[kPageBytes] = std::byte{77};

  ASSERT_TRUE(space->withdraw(parts, at).ok());
  std::byte* const there = space->bytes_at(parts, at);
  EXPECT_EQ(there[kPageBytes], std::byte{77});
  EXPECT_EQ(std::memcmp(there + 5 * kPageBytes, data.data() + 5 * kPageBytes, kPageBytes), 0);
  ASSERT_TRUE(space->restore(parts, at).ok());
  EXPECT_EQ(at[kPageBytes], std::byte{77});
  EXPECT_EQ(std::memcmp(at + 2 * kPageBytes, data.data() + 2 * kPageBytes, kPageBytes), 0);

  // Dropped pages are no longer charged. Withdrawn pages stay charged until they are returned to
  // the kernel.
  ASSERT_TRUE(space->unmap(parts, at).ok());
  space->memory().return_frame(parts);
  EXPECT_EQ(space->memory().usage().in_use, before);
  const FrameId others = space->memory().acquire_parts({Pool::small, kSmall, 0}, 1);
  ASSERT_TRUE(space->insert(others, at, data.data(), 0b1, false).ok());
  ASSERT_TRUE(space->withdraw(others, at).ok());
  space->memory().return_frame(others);
  EXPECT_EQ(space->memory().usage().in_use, before + kPageBytes);
  EXPECT_EQ(space->memory().usage().leaving, kPageBytes);
  EXPECT_EQ(space->memory().begin_trim(1), kPageBytes);
  EXPECT_EQ(space->memory().usage().leaving, 0u);
  space->memory().run_trim();
  space->memory().finish_trim();
  EXPECT_EQ(space->memory().usage().in_use, before);
  EXPECT_TRUE(space->memory().test_consistent());
}

// A touch of an emptied page waits, and other bytes can arrive there. The mover keeps the charge.
TEST_P(SmallMappedFrame, parts_that_are_emptied_are_gone_and_may_come_again) {
  std::vector<std::byte> data(kSmall), other(kSmall);
  fill(data.data(), kSmall, 4);
  fill(other.data(), kSmall, 5);
  const FrameId parts = space->memory().acquire_parts({Pool::small, kSmall, 0}, 4);
  ASSERT_TRUE(space->insert(parts, at, data.data(), 0b101110, false).ok());
  const std::uint64_t in_use = space->memory().usage().in_use;
  EXPECT_EQ(space->empty(parts, at, 0b10001).code(), Code::internal) << "not all are there";
  EXPECT_EQ(space->empty(parts, at + kSmall, 0b10).code(), Code::internal) << "nor there";
  ASSERT_TRUE(space->empty(parts, at, 0b100110).ok());
  EXPECT_EQ(space->memory().usage().in_use, in_use);
  std::byte* const page = at + 3 * kSmallestExtent;
  EXPECT_EQ(std::memcmp(page, data.data() + 3 * kSmallestExtent, kSmallestExtent), 0);
  unsigned char there[8] = {};
  ASSERT_EQ(mincore(at, 8 * kSmallestExtent, there), 0);
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(there[i] & 1, i == 3 ? 1 : 0) << i;
  }
  ASSERT_TRUE(space->insert(parts, at, other.data(), 0b110, false).ok());
  EXPECT_EQ(std::memcmp(at + kSmallestExtent, other.data() + kSmallestExtent, 2 * kSmallestExtent),
            0);
  ASSERT_TRUE(space->unmap(parts, at).ok());
  space->memory().discharge_parts(parts, 4);
  space->memory().return_frame(parts);
  EXPECT_TRUE(space->memory().test_consistent());
}

// Pages that the kernel does not take back stay charged. No request waits for them as if they were
// about to become free.
TEST_P(SmallMappedFrame, pages_that_the_kernel_keeps_are_not_counted_on) {
  if (copies()) {
    GTEST_SKIP() << "the home is mapped again, which drops its pages";
  }
  std::vector<std::byte> data(kSmall);
  const std::uint64_t before = space->memory().usage().in_use;
  const FrameId parts = space->memory().acquire_parts({Pool::small, kSmall, 0}, 1);
  ASSERT_TRUE(space->insert(parts, at, data.data(), 0b1, false).ok());
  ASSERT_TRUE(space->withdraw(parts, at).ok());
  std::byte* const there = space->bytes_at(parts, at);
  // Makes madvise fail with ENOMEM.
  ASSERT_EQ(munmap(there + kSmallestExtent, kSmallestExtent), 0);
  space->memory().return_frame(parts);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(space->memory().begin_trim(1), kSmallestExtent);
    space->memory().run_trim();
    space->memory().finish_trim();
    EXPECT_EQ(space->memory().usage().leaving, 0u);
    EXPECT_EQ(space->memory().usage().in_use, before + kSmallestExtent);
  }
  EXPECT_EQ(space->counters().trims_refused, 2u);
  ASSERT_EQ(mmap(there + kSmallestExtent, kSmallestExtent, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            there + kSmallestExtent);
  EXPECT_EQ(space->memory().begin_trim(1), kSmallestExtent);
  space->memory().run_trim();
  space->memory().finish_trim();
  EXPECT_EQ(space->memory().usage().in_use, before);
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST_P(SmallMappedFrame, a_running_writer_loses_no_write) {
  write_while_it_moves(*space, small, at, kSmall, 3000);
}

// If pages are swapped out while they move, the kernel itself counts too few.
TEST_P(SmallMappedFrame, a_running_writer_loses_no_write_while_pages_are_swapped) {
  constexpr int kPageOut = 21;  // MADV_PAGEOUT, Linux 5.4
  struct sysinfo info {};
  if (sysinfo(&info) != 0 || info.totalswap == 0) {
    GTEST_SKIP() << "no swap";
  }
  std::atomic<bool> stop{false};
  std::thread kernel([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      (void)madvise(at, kSmall, kPageOut);
      (void)madvise(its_home, kSmall, kPageOut);
    }
  });
  write_while_it_moves(*space, small, at, kSmall, 3000);
  stop = true;
  kernel.join();
  EXPECT_EQ(space->counters().withdrawals_refused, 0U);
}

// Linux 6.18 moves pages without counting them. Taken as refused, they would be lost or replaced by
// zeros.
TEST_P(SmallMappedFrame, what_the_kernel_moves_and_does_not_count_is_no_refusal) {
  if (copies()) {
    GTEST_SKIP() << "nothing is moved";
  }
  for (const auto& [counted, uncounted] : {std::pair{0u, 1u}, {0u, 16u}, {6u, 9u}, {15u, 1u}}) {
    {
      const UncountedMove in(counted, uncounted);
      ASSERT_TRUE(space->restore(small, at).ok());
      EXPECT_TRUE(in.happened());
    }
    EXPECT_TRUE(holds(at, kSmall, 1)) << counted << " and " << uncounted;
    const UncountedMove out(counted, uncounted);
    const Status left = space->withdraw(small, at);
    ASSERT_TRUE(left.ok()) << left.message();
    EXPECT_TRUE(out.happened());
    EXPECT_TRUE(holds(its_home, kSmall, 1)) << counted << " and " << uncounted;
  }
  EXPECT_EQ(space->counters().withdrawals_refused, 0U);
}

// The program's own advice for some pages splits the window into several mappings.
TEST_P(SmallMappedFrame, a_window_of_many_mappings_is_left_and_entered_as_any) {
  ASSERT_EQ(madvise(at + 4096, 4096, MADV_DONTDUMP), 0);
  ASSERT_EQ(madvise(at + 5 * 4096, 3 * 4096, MADV_DONTDUMP), 0);
  for (std::uint64_t what = 1; what < 4; ++what) {
    ASSERT_TRUE(space->restore(small, at).ok());
    EXPECT_TRUE(holds(at, kSmall, what));
    fill(at, kSmall, what + 1);
    const Status left = space->withdraw(small, at);
    ASSERT_TRUE(left.ok()) << left.message();
    EXPECT_TRUE(holds(its_home, kSmall, what + 1));
  }
  ASSERT_EQ(madvise(at, kSmall, MADV_DODUMP), 0);
}

INSTANTIATE_TEST_SUITE_P(By, MappedFrame, ::testing::Values(Mechanism::uffd_move, Mechanism::copy),
                         mechanism_name);
INSTANTIATE_TEST_SUITE_P(By, SmallMappedFrame,
                         ::testing::Values(Mechanism::uffd_move, Mechanism::copy), mechanism_name);

// A home becomes a separate mapping when its pages came by mremap. The number of mappings is
// limited; below the limit homes merge again.
TEST(MappedFrames, that_are_copied_cost_few_mappings) {
  constexpr std::uint64_t kSmall = 64 * kKiB;
  constexpr unsigned kFrames = 400;
  HostSpaceOptions options = small_options(64 * kMiB);
  options.mechanism = Mechanism::copy;
  const std::uint64_t before = host::map_count();
  options.map_limit = (before + 300) * 10 / 9;
  auto made = HostSpace::create(options);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  HostSpace& space = **made;
  std::byte* const window = *space.reserve_window(kFrames * kSmall, kSmall, true);
  std::vector<FrameId> frames;
  for (unsigned i = 0; i < kFrames; ++i) {
    frames.push_back(space.memory().acquire_frame({Pool::small, kSmall, 0}));
    ASSERT_TRUE(space.memory().populate(frames[i], false, nullptr).ok());
    fill(space.bytes_at(frames[i], window), kSmall, i);
    ASSERT_TRUE(space.restore(frames[i], window + i * kSmall).ok());
  }
  unsigned refused = 0;
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<bool> out(kFrames);
    for (unsigned i = 0; i < kFrames; ++i) {
      const unsigned n = i * 37 % kFrames;  // Neighbours do not leave together.
      const Status left = space.withdraw(frames[n], window + n * kSmall);
      out[n] = left.ok();
      refused += left.ok() ? 0 : 1;
      EXPECT_TRUE(left.ok() || left.code() == Code::busy) << left.message();
    }
    EXPECT_LT(host::map_count(), before + 300);
    for (unsigned i = 0; i < kFrames; ++i) {
      if (out[i]) {
        ASSERT_TRUE(space.restore(frames[i], window + i * kSmall).ok());
      }
      EXPECT_TRUE(holds(window + i * kSmall, kSmall, i)) << i;
    }
    EXPECT_LT(host::map_count(), before + 200) << "homes are whole again";
  }
  EXPECT_GT(refused, 0U) << "the limit was not met";
  for (unsigned i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(space.unmap(frames[i], window + i * kSmall).ok());
    space.memory().return_frame(frames[i]);
  }
  EXPECT_TRUE(space.memory().test_consistent());
}

TEST(MappedFrames, without_moves_there_are_no_mapped_windows) {
  for (const Mechanism mechanism : {Mechanism::remap, Mechanism::in_place}) {
    auto space = make_space(16 * kMiB, mechanism);
    if (!space.ok()) {
      continue;
    }
    auto window = (*space)->reserve_window(2 * kMiB, 2 * kMiB, true);
    EXPECT_EQ(window.code(), Code::unsupported);
    EXPECT_NE(std::strstr(window.message(), "UFFDIO_MOVE"), nullptr) << window.message();
  }
}

}  // namespace
}  // namespace tiermem

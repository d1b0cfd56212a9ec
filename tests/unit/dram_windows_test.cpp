// Frames in windows, by each mechanism: bytes, forks, locked and split pages, mappings.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "dram_fixture.hpp"

namespace tiermem {
namespace {

// A child of fork that, on command, checks the bytes that its parent left in memory.
class Child {
 public:
  template <typename Check>
  explicit Child(Check&& check) {
    EXPECT_EQ(pipe(tell_.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(tell_[1]);
      char byte = 0;
      while (read(tell_[0], &byte, 1) < 0 && errno == EINTR) {
      }
      _exit(check() ? 0 : 1);
    }
    close(tell_[0]);
  }
  // Returns 0 if the check passed.
  int finish() {
    close(tell_[1]);
    int status = -1;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

 private:
  std::array<int, 2> tell_{};
  pid_t pid_ = -1;
};

class DramWindows : public testing::TestWithParam<std::tuple<Mechanism, std::uint64_t>> {
 protected:
  void SetUp() override {
    auto made = make_space(256 * kMiB, std::get<0>(GetParam()));
    if (!made.ok()) {
      GTEST_SKIP() << made.message();
    }
    space = std::move(*made);
    auto reserved = space->reserve_window(kExtents * bytes, bytes, false);
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    window = *reserved;
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      frames.push_back(space->memory().acquire_frame({space->window_pool(bytes), bytes, 0}));
      ASSERT_TRUE(frames.back().valid());
    }
  }
  void TearDown() override {
    if (space == nullptr) {
      return;
    }
    for (std::uint64_t i = 0; i < frames.size(); ++i) {
      EXPECT_TRUE(space->unmap(frames[i], at(i)).ok());
      space->memory().return_frame(frames[i]);
    }
    space->release_window(window, kExtents * bytes);
    EXPECT_EQ(space->memory().usage().in_use, 0U);
    EXPECT_TRUE(space->memory().test_consistent());
  }

  std::byte* at(std::uint64_t i) const { return window + i * bytes; }
  bool in_place() const { return space->bytes_at(frames[0], nullptr) == nullptr; }

  // The steps of a promote: pages, bytes, map.
  void bring(std::uint64_t i, std::uint64_t what) {
    if (space->memory().needs_populate(frames[i])) {
      const Status populated = space->memory().populate(frames[i], false, at(i));
      ASSERT_TRUE(populated.ok()) << populated.message();
    }
    fill(space->bytes_at(frames[i], at(i)), bytes, what);
    show(i);
  }
  void show(std::uint64_t i) {
    Mechanism used{};
    const Status mapped = space->map(frames[i], at(i), used);
    ASSERT_TRUE(mapped.ok()) << mapped.message();
    const bool small = bytes < 2 * kMiB;
    EXPECT_EQ(used, small ? space->facts().small_windows : space->facts().windows);
  }
  void hide(std::uint64_t i) {
    const Status unmapped = space->unmap(frames[i], at(i));
    ASSERT_TRUE(unmapped.ok()) << unmapped.message();
  }

  static constexpr std::uint64_t kExtents = 4;
  const std::uint64_t bytes = std::get<1>(GetParam());
  std::unique_ptr<HostSpace> space;
  std::byte* window = nullptr;
  std::vector<FrameId> frames;
};

TEST_P(DramWindows, bytes_are_in_the_window_and_go_home_with_the_frame) {
  for (std::uint64_t i = 0; i < kExtents; ++i) {
    bring(i, i);
  }
  for (std::uint64_t round = 1; round < 4; ++round) {
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      ASSERT_TRUE(holds(at(i), bytes, i + 100 * (round - 1)));
      fill(at(i), bytes, i + 100 * round);
      hide(i);
      if (in_place()) {
        bring(i, i + 100 * round);
        continue;
      }
      if (std::get<0>(GetParam()) != Mechanism::copy) {  // Small pages, to be collapsed again.
        ASSERT_FALSE(space->memory().needs_populate(frames[i]));
      }
      ASSERT_TRUE(holds(space->bytes_at(frames[i], at(i)), bytes, i + 100 * round));
      show(i);
    }
  }
}

// Goal: a child sees the bytes as of the fork whatever the parent evicts, and the parent gets its
// own bytes back. Two rounds, because the second starts with the state that the first left.
TEST_P(DramWindows, an_eviction_while_a_forked_child_lives_loses_nothing) {
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      bring(i, i + 10 * round);
    }
    Child child([&] {
      for (std::uint64_t i = 0; i < kExtents; ++i) {
        if (!holds(at(i), bytes, i + 10 * round)) {
          return false;
        }
      }
      return true;
    });
    // Part of one extent belongs to the parent alone again.
    at(1)[0] = ~at(1)[0];
    at(1)[0] = ~at(1)[0];
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      hide(i);
      if (space->memory().needs_populate(frames[i]) || in_place()) {
        bring(i, i + 10 * round);
      } else {
        ASSERT_TRUE(holds(space->bytes_at(frames[i], at(i)), bytes, i + 10 * round));
        show(i);
      }
      ASSERT_TRUE(holds(at(i), bytes, i + 10 * round));
      fill(at(i), bytes, 999);
    }
    EXPECT_EQ(child.finish(), 0) << "the child saw other bytes";
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      ASSERT_TRUE(holds(at(i), bytes, 999));
      hide(i);
    }
  }
  if (std::get<0>(GetParam()) == Mechanism::uffd_move) {
    EXPECT_GT(space->counters().dropped_out, 0U) << "fork-shared pages do not move";
  }
}

TEST_P(DramWindows, a_child_inherits_the_window_after_frames_moved_in) {
  bring(0, 1);
  hide(0);
  bring(0, 2);
  Child child([&] { return holds(at(0), bytes, 2); });
  EXPECT_EQ(child.finish(), 0);
}

TEST_P(DramWindows, a_page_locked_frame_is_dropped_not_lost_track_of) {
  bring(0, 3);
  if (mlock(at(0), bytes) != 0) {
    GTEST_SKIP() << "mlock refused";
  }
  hide(0);
  munlock(at(0), bytes);
  bring(0, 4);
  EXPECT_TRUE(holds(at(0), bytes, 4));
}

std::string name_of(const testing::TestParamInfo<DramWindows::ParamType>& each) {
  static constexpr std::array kNames = {"in_place", "uffd_move", "remap", "copy"};
  return std::string(kNames[static_cast<std::size_t>(std::get<0>(each.param))]) + "_" +
         std::to_string(std::get<1>(each.param) / kKiB) + "K";
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, DramWindows,
                         testing::Combine(testing::Values(Mechanism::uffd_move, Mechanism::copy,
                                                          Mechanism::remap, Mechanism::in_place),
                                          testing::Values(4 * kKiB, 64 * kKiB, 2 * kMiB,
                                                          16 * kMiB)),
                         name_of);

TEST(Dram, a_page_locked_home_is_copied_in) {
  const MovedFrame moved;
  if (!moved.why_not.empty()) {
    GTEST_SKIP() << moved.why_not;
  }
  HostSpace& space = *moved.space;
  // With a sanitizer mlock() does nothing, so call the kernel.
  if (syscall(SYS_mlock, moved.home, moved.kBytes) != 0) {
    GTEST_SKIP() << "mlock refused";
  }
  Mechanism used{};
  const Status mapped = space.map(moved.frame, moved.window, used);
  syscall(SYS_munlock, moved.home, moved.kBytes);
  ASSERT_TRUE(mapped.ok()) << mapped.message();
  EXPECT_EQ(used, Mechanism::copy);
  EXPECT_TRUE(holds(moved.window, moved.kBytes, 1));
  EXPECT_EQ(space.counters().copied_in, 1U);
  ASSERT_TRUE(space.unmap(moved.frame, moved.window).ok());
  EXPECT_TRUE(holds(moved.home, moved.kBytes, 1));
  space.memory().return_frame(moved.frame);
}

TEST(Dram, a_frame_split_in_its_window_is_repaired) {
  const MovedFrame moved;
  if (!moved.why_not.empty()) {
    GTEST_SKIP() << moved.why_not;
  }
  HostSpace& space = *moved.space;
  std::byte* const window = moved.window;
  const auto huge = [&] { return host::huge_bytes(moved.home, moved.kBytes); };
  if (huge().value_or(0) == 0) {
    GTEST_SKIP() << "no huge page, or no way to know";
  }
  Mechanism used{};
  ASSERT_TRUE(space.map(moved.frame, window, used).ok());
  ASSERT_EQ(mprotect(window + 4096, 4096, PROT_READ), 0);
  ASSERT_EQ(mprotect(window + 4096, 4096, PROT_READ | PROT_WRITE), 0);
  ASSERT_TRUE(space.unmap(moved.frame, window).ok());
  ASSERT_EQ(space.counters().dropped_out, 0U) << "or there is nothing at home";
  EXPECT_TRUE(holds(moved.home, moved.kBytes, 1));
  EXPECT_EQ(space.counters().split, 1U);
  EXPECT_TRUE(space.memory().needs_populate(moved.frame));
  ASSERT_TRUE(space.memory().populate(moved.frame, false, nullptr).ok());
  EXPECT_FALSE(space.memory().needs_populate(moved.frame)) << "one attempt";
  EXPECT_TRUE(holds(moved.home, moved.kBytes, 1)) << "repair keeps the bytes";
  EXPECT_EQ(huge(), space.counters().repaired * moved.kBytes);
  ASSERT_TRUE(space.map(moved.frame, window, used).ok());
  EXPECT_TRUE(holds(window, moved.kBytes, 1));
  ASSERT_TRUE(space.unmap(moved.frame, window).ok());
}

TEST(Dram, mapping_by_remap_stops_before_mappings_run_out) {
  HostSpaceOptions options = small_options(64 * kMiB);
  options.mechanism = Mechanism::remap;
  options.map_limit = host::map_count() + 40;
  options.map_limit += options.map_limit / 9;
  auto made = HostSpace::create(options);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  HostSpace& space = **made;
  std::byte* const window = *space.reserve_window(128 * kMiB, 2 * kMiB, false);
  // Every second extent, because neighbouring mappings would merge.
  constexpr std::uint64_t kStride = 4 * kMiB;
  std::vector<FrameId> mapped;
  bool refused = false;
  for (std::uint64_t i = 0; i < 32 && !refused; ++i) {
    const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
    ASSERT_TRUE(space.memory().populate(frame, false, nullptr).ok());
    fill(space.bytes_at(frame, window), 2 * kMiB, i);
    Mechanism used{};
    const Status status = space.map(frame, window + i * kStride, used);
    if (status.ok()) {
      mapped.push_back(frame);
      continue;
    }
    refused = true;
    EXPECT_EQ(status.code(), Code::no_capacity);
    EXPECT_STREQ(status.info()->setting, "vm.max_map_count");
    EXPECT_TRUE(holds(space.bytes_at(frame, window), 2 * kMiB, i)) << "the frame is at home, whole";
    space.memory().return_frame(frame);
  }
  EXPECT_TRUE(refused);
  EXPECT_LT(host::map_count(), options.map_limit);
  for (std::uint64_t i = 0; i < mapped.size(); ++i) {
    EXPECT_TRUE(holds(window + i * kStride, 2 * kMiB, i));
    EXPECT_TRUE(space.unmap(mapped[i], window + i * kStride).ok());
    space.memory().return_frame(mapped[i]);
  }
}

TEST(Dram, ten_thousand_windows_are_few_mappings) {
  if (host::address_space_limit() < std::uint64_t{64} << 30) {
    GTEST_SKIP() << "RLIMIT_AS leaves too little address space";
  }
  for (const Mechanism mechanism : {Mechanism::uffd_move, Mechanism::remap, Mechanism::in_place}) {
    auto made = make_space(16 * kMiB, mechanism);
    if (!made.ok()) {
      continue;  // Reported by the tests above.
    }
    HostSpace& space = **made;
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer makes mappings of its own";
#endif
    const std::uint64_t before = host::map_count();
    std::vector<std::pair<std::byte*, std::uint64_t>> windows;
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      const std::uint64_t extent = i % 2 == 0 ? 2 * kMiB : 64 * kKiB;
      auto window = space.reserve_window(extent, extent, false);
      ASSERT_TRUE(window.ok()) << window.message();
      windows.emplace_back(*window, extent);
    }
    for (std::size_t i = 0; i < windows.size(); i += 3) {
      space.release_window(windows[i].first, windows[i].second);
    }
    EXPECT_LT(host::map_count(), before + 40);
  }
}

TEST(Dram, a_frame_of_the_locked_pool_appears_in_no_window) {
  auto made = HostSpace::create(small_options(8 * kMiB));
  ASSERT_TRUE(made.ok()) << made.message();
  HostSpace& space = **made;
  const FrameId frame = space.memory().acquire_frame({Pool::locked, 2 * kMiB, 0});
  ASSERT_TRUE(frame.valid());
  ASSERT_TRUE(space.memory().populate(frame, false, nullptr).ok());
  std::byte* const window = *space.reserve_window(4 * kMiB, 2 * kMiB, false);
  Mechanism used{};
  EXPECT_EQ(space.map(frame, window, used).code(), Code::internal);
  EXPECT_TRUE(space.map(frame, nullptr, used).ok()) << "without a window, map() does nothing";
  space.memory().return_frame(frame);
  space.release_window(window, 4 * kMiB);
}

// Returns a window that holds a frame. The program has unmapped `missing` bytes of it, which makes
// madvise fail when the window is released.
std::byte* window_with_bytes(HostSpace& space, std::uint64_t missing) {
  std::byte* const window = *space.reserve_window(2 * kMiB, 2 * kMiB, true);
  const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
  Mechanism used{};
  EXPECT_TRUE(space.memory().populate(frame, false, nullptr).ok());
  fill(space.bytes_at(frame, window), 2 * kMiB, 1);
  EXPECT_TRUE(space.map(frame, window, used).ok());
  EXPECT_EQ(munmap(window + kMiB, missing), 0);
  return window;
}

TEST(Dram, window_that_madvise_does_not_empty_is_mapped_anew) {
  auto made = make_space(16 * kMiB, Mechanism::uffd_move);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  HostSpace& space = **made;
  std::byte* const window = window_with_bytes(space, host::kPage);
  space.release_window(window, 2 * kMiB);
  auto next = space.reserve_window(2 * kMiB, 2 * kMiB, true);
  ASSERT_TRUE(next.ok()) << next.message();
  ASSERT_EQ(*next, window);
  EXPECT_EQ(host::leading_bytes(window, 2 * kMiB, false), 2 * kMiB) << "old bytes are there";
  const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
  Mechanism used{};
  ASSERT_TRUE(space.memory().populate(frame, false, nullptr).ok());
  fill(space.bytes_at(frame, window), 2 * kMiB, 2);
  ASSERT_TRUE(space.map(frame, window, used).ok());
  EXPECT_TRUE(holds(window, 2 * kMiB, 2));
}

// UFFDIO_MOVE and mremap take pages of any private mapping, registered or not.
TEST(Dram, what_the_program_mapped_in_a_window_is_neither_taken_nor_emptied) {
  char name[] = "/tmp/tiermem-lent-XXXXXX";
  const int file = mkstemp(name);
  ASSERT_GE(file, 0);
  unlink(name);
  ASSERT_EQ(ftruncate(file, 4 * host::kPage), 0);
  for (const Mechanism mechanism : {Mechanism::uffd_move, Mechanism::copy, Mechanism::remap}) {
    for (const bool wanted : {true, false}) {
      auto made = make_space(16 * kMiB, mechanism);
      if (!made.ok()) {
        continue;
      }
      HostSpace& space = **made;
      const bool mapped = mechanism != Mechanism::remap;
      auto window = space.reserve_window(2 * kMiB, 2 * kMiB, mapped);
      const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
      Mechanism used{};
      ASSERT_TRUE(window.ok() && space.memory().populate(frame, false, nullptr).ok());
      fill(space.bytes_at(frame, *window), 2 * kMiB, 1);
      ASSERT_TRUE(space.map(frame, *window, used).ok());
      std::byte* const part = *window + kMiB;
      ASSERT_TRUE(space.lend_window(part, 4 * host::kPage));
      ASSERT_EQ(
          mmap(part, 4 * host::kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0),
          part);
      fill(part, 4 * host::kPage, 9);
      if (wanted && mapped) {
        EXPECT_EQ(space.withdraw(frame, *window).code(), Code::busy);
        EXPECT_TRUE(holds(*window, kMiB, 1));
      } else {
        EXPECT_TRUE(space.unmap(frame, *window).ok());
      }
      EXPECT_TRUE(holds(part, 4 * host::kPage, 9)) << "mechanism " << static_cast<int>(mechanism);
    }
  }
  close(file);
}

// In a child, because filters stay.
bool refuse_mmap() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Dram, window_that_the_kernel_keeps_is_never_a_window_again) {
  const pid_t child = fork();
  if (child == 0) {
    auto made = make_space(16 * kMiB, Mechanism::uffd_move);
    if (!made.ok()) {
      _exit(77);
    }
    HostSpace& space = **made;
    std::byte* const window = window_with_bytes(space, host::kPage);
    if (!refuse_mmap()) {
      _exit(77);
    }
    space.release_window(window, 2 * kMiB);
    for (int i = 0; i < 64; ++i) {
      auto next = space.reserve_window(2 * kMiB, 2 * kMiB, true);
      if (!next.ok() || *next == window) {
        _exit(next.ok() ? 1 : 2);
      }
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "no UFFDIO_MOVE, or seccomp filters are refused";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tiermem

// Frames in windows, by each mechanism: bytes, forks, faults, mappings and memory.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tier/dram.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = kKiB * 1024;

DramOptions small_options(std::uint64_t budget) {
  return {.budget = budget, .window_reserve_bytes = std::uint64_t{32} << 30};
}

// Bytes that tell extent and version apart, word by word.
void fill(std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    value = value * 6364136223846793005 + 1442695040888963407;
    std::memcpy(data + i, &value, 8);
  }
}

bool holds(const std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    value = value * 6364136223846793005 + 1442695040888963407;
    if (std::memcmp(data + i, &value, 8) != 0) {
      return false;
    }
  }
  return true;
}

// A child of fork that checks what its parent left in memory, when told to.
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
  // 0 when the check passed.
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
    DramOptions options = small_options(256 * kMiB);
    options.mechanism = std::get<0>(GetParam());
    auto made = DramTier::create(options);
    if (!made.ok()) {
      GTEST_SKIP() << made.message();
    }
    tier = std::move(*made);
    auto reserved = tier->reserve_window(kExtents * bytes, bytes);
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    window = *reserved;
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      frames.push_back(tier->acquire_frame({tier->window_pool(bytes), bytes, 0}));
      ASSERT_TRUE(frames.back().valid());
    }
  }
  void TearDown() override {
    if (tier == nullptr) {
      return;
    }
    for (std::uint64_t i = 0; i < frames.size(); ++i) {
      EXPECT_TRUE(tier->unmap(frames[i], at(i)).ok());
      tier->return_frame(frames[i]);
    }
    tier->release_window(window, kExtents * bytes);
    EXPECT_EQ(tier->books().in_use, 0U);
    EXPECT_TRUE(tier->test_consistent());
  }

  std::byte* at(std::uint64_t i) const { return window + i * bytes; }
  bool in_place() const { return tier->landing(frames[0], nullptr) == nullptr; }

  // As a promote does: pages, bytes, map.
  void bring(std::uint64_t i, std::uint64_t what) {
    if (tier->needs_populate(frames[i])) {
      const Status populated = tier->populate(frames[i], false, at(i));
      ASSERT_TRUE(populated.ok()) << populated.message();
    }
    fill(tier->landing(frames[i], at(i)), bytes, what);
    show(i);
  }
  void show(std::uint64_t i) {
    Mechanism used{};
    const Status mapped = tier->map(frames[i], at(i), used);
    ASSERT_TRUE(mapped.ok()) << mapped.message();
    const bool small = bytes < 2 * kMiB;
    EXPECT_EQ(used, small ? tier->facts().small_windows : tier->facts().windows);
  }
  void hide(std::uint64_t i) {
    const Status unmapped = tier->unmap(frames[i], at(i));
    ASSERT_TRUE(unmapped.ok()) << unmapped.message();
  }

  static constexpr std::uint64_t kExtents = 4;
  const std::uint64_t bytes = std::get<1>(GetParam());
  std::unique_ptr<DramTier> tier;
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
      ASSERT_FALSE(tier->needs_populate(frames[i]));
      ASSERT_TRUE(holds(tier->landing(frames[i], at(i)), bytes, i + 100 * round));
      show(i);
    }
  }
}

TEST_P(DramWindows, a_frame_can_appear_elsewhere) {
  bring(0, 7);
  hide(0);
  if (in_place()) {
    GTEST_SKIP() << "in place, bytes do not travel with frames";
  }
  std::swap(frames[0], frames[1]);
  show(1);
  EXPECT_TRUE(holds(at(1), bytes, 7));
  bring(0, 8);
  EXPECT_TRUE(holds(at(0), bytes, 8));
}

TEST_P(DramWindows, never_written_frames_show_zeros) {
  ASSERT_TRUE(tier->populate(frames[0], true, nullptr).ok());
  show(0);
  EXPECT_TRUE(std::all_of(at(0), at(0) + bytes, [](std::byte b) { return b == std::byte{0}; }));
  fill(at(0), bytes, 5);
  EXPECT_TRUE(holds(at(0), bytes, 5));
}

// Goal: a child sees the bytes as of the fork whatever the parent evicts, and the parent gets its
// own bytes back. Twice, since the second round meets what the first left behind.
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
    // One extent is partly the parent's own again.
    at(1)[0] = ~at(1)[0];
    at(1)[0] = ~at(1)[0];
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      hide(i);
      if (tier->needs_populate(frames[i]) || in_place()) {
        bring(i, i + 10 * round);
      } else {
        ASSERT_TRUE(holds(tier->landing(frames[i], at(i)), bytes, i + 10 * round));
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
    EXPECT_GT(tier->counters().dropped_out, 0U) << "fork-shared pages do not move";
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

INSTANTIATE_TEST_SUITE_P(
    Mechanisms, DramWindows,
    testing::Combine(testing::Values(Mechanism::uffd_move, Mechanism::remap, Mechanism::in_place),
                     testing::Values(4 * kKiB, 64 * kKiB, 2 * kMiB, 16 * kMiB)),
    name_of);

TEST(Dram, a_page_locked_home_is_copied_in) {
  DramOptions options = small_options(16 * kMiB);
  options.mechanism = Mechanism::uffd_move;
  auto made = DramTier::create(options);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  DramTier& tier = **made;
  std::byte* const window = *tier.reserve_window(2 * kMiB, 2 * kMiB);
  const FrameId frame = tier.acquire_frame({Pool::movable, 2 * kMiB, 0});
  ASSERT_TRUE(tier.populate(frame, false, nullptr).ok());
  std::byte* const home = tier.landing(frame, window);
  fill(home, 2 * kMiB, 1);
  // Sanitizers make mlock() do nothing: ask the kernel.
  if (syscall(SYS_mlock, home, 2 * kMiB) != 0) {
    GTEST_SKIP() << "mlock refused";
  }
  Mechanism used{};
  const Status mapped = tier.map(frame, window, used);
  syscall(SYS_munlock, home, 2 * kMiB);
  ASSERT_TRUE(mapped.ok()) << mapped.message();
  EXPECT_EQ(used, Mechanism::copy);
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  EXPECT_EQ(tier.counters().copied_in, 1U);
  ASSERT_TRUE(tier.unmap(frame, window).ok());
  EXPECT_TRUE(holds(home, 2 * kMiB, 1));
  tier.return_frame(frame);
}

TEST(Dram, a_frame_split_in_its_window_is_repaired) {
  DramOptions options = small_options(16 * kMiB);
  options.mechanism = Mechanism::uffd_move;
  auto made = DramTier::create(options);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  DramTier& tier = **made;
  std::byte* const window = *tier.reserve_window(2 * kMiB, 2 * kMiB);
  const FrameId frame = tier.acquire_frame({Pool::movable, 2 * kMiB, 0});
  ASSERT_TRUE(tier.populate(frame, false, nullptr).ok());
  std::byte* const home = tier.landing(frame, window);
  if (host::huge_bytes(home, 2 * kMiB).value_or(0) == 0) {
    GTEST_SKIP() << "no huge page, or no way to know";
  }
  fill(home, 2 * kMiB, 1);
  Mechanism used{};
  ASSERT_TRUE(tier.map(frame, window, used).ok());
  ASSERT_EQ(mprotect(window + 4096, 4096, PROT_READ), 0);
  ASSERT_EQ(mprotect(window + 4096, 4096, PROT_READ | PROT_WRITE), 0);
  ASSERT_TRUE(tier.unmap(frame, window).ok());
  EXPECT_TRUE(holds(home, 2 * kMiB, 1));
  EXPECT_EQ(tier.counters().split, 1U);
  EXPECT_TRUE(tier.needs_populate(frame));
  ASSERT_TRUE(tier.populate(frame, false, nullptr).ok());
  EXPECT_FALSE(tier.needs_populate(frame)) << "one attempt";
  EXPECT_TRUE(holds(home, 2 * kMiB, 1)) << "repair keeps the bytes";
  EXPECT_EQ(host::huge_bytes(home, 2 * kMiB), tier.counters().repaired * 2 * kMiB);
  ASSERT_TRUE(tier.map(frame, window, used).ok());
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  ASSERT_TRUE(tier.unmap(frame, window).ok());
}

TEST(Dram, mapping_by_remap_stops_before_mappings_run_out) {
  DramOptions options = small_options(64 * kMiB);
  options.mechanism = Mechanism::remap;
  options.map_limit = host::map_count() + 40;
  options.map_limit += options.map_limit / 9;
  auto made = DramTier::create(options);
  if (!made.ok()) {
    GTEST_SKIP() << made.message();
  }
  DramTier& tier = **made;
  std::byte* const window = *tier.reserve_window(128 * kMiB, 2 * kMiB);
  // Every second extent, or neighbours would merge.
  constexpr std::uint64_t kStride = 4 * kMiB;
  std::vector<FrameId> mapped;
  bool refused = false;
  for (std::uint64_t i = 0; i < 32 && !refused; ++i) {
    const FrameId frame = tier.acquire_frame({Pool::movable, 2 * kMiB, 0});
    ASSERT_TRUE(tier.populate(frame, false, nullptr).ok());
    fill(tier.landing(frame, window), 2 * kMiB, i);
    Mechanism used{};
    const Status status = tier.map(frame, window + i * kStride, used);
    if (status.ok()) {
      mapped.push_back(frame);
      continue;
    }
    refused = true;
    EXPECT_EQ(status.code(), Code::no_capacity);
    EXPECT_STREQ(status.info()->setting, "vm.max_map_count");
    EXPECT_TRUE(holds(tier.landing(frame, window), 2 * kMiB, i)) << "the frame is at home, whole";
    tier.return_frame(frame);
  }
  EXPECT_TRUE(refused);
  EXPECT_LT(host::map_count(), options.map_limit);
  for (std::uint64_t i = 0; i < mapped.size(); ++i) {
    EXPECT_TRUE(holds(window + i * kStride, 2 * kMiB, i));
    EXPECT_TRUE(tier.unmap(mapped[i], window + i * kStride).ok());
    tier.return_frame(mapped[i]);
  }
}

TEST(Dram, ten_thousand_windows_are_few_mappings) {
  if (host::address_space_limit() < std::uint64_t{64} << 30) {
    GTEST_SKIP() << "RLIMIT_AS leaves too little address space";
  }
  for (const Mechanism mechanism : {Mechanism::uffd_move, Mechanism::remap, Mechanism::in_place}) {
    DramOptions options = small_options(16 * kMiB);
    options.mechanism = mechanism;
    auto made = DramTier::create(options);
    if (!made.ok()) {
      continue;  // Said by the tests above.
    }
    DramTier& tier = **made;
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer makes mappings of its own";
#endif
    const std::uint64_t before = host::map_count();
    std::vector<std::pair<std::byte*, std::uint64_t>> windows;
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      const std::uint64_t extent = i % 2 == 0 ? 2 * kMiB : 64 * kKiB;
      auto window = tier.reserve_window(extent, extent);
      ASSERT_TRUE(window.ok()) << window.message();
      windows.emplace_back(*window, extent);
    }
    for (std::size_t i = 0; i < windows.size(); i += 3) {
      tier.release_window(windows[i].first, windows[i].second);
    }
    EXPECT_LT(host::map_count(), before + 40);
  }
}

// Touches without a view. SIGBUS is caught in the touching thread, which jumps out of the touch.
class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    DramOptions options = small_options(16 * kMiB);
    options.mechanism = Mechanism::uffd_move;
    auto made = DramTier::create(options);
    if (!made.ok()) {
      GTEST_SKIP() << made.message();
    }
    tier = std::move(*made);
    window = *tier->reserve_window(4 * kMiB, 2 * kMiB);
    frame = tier->acquire_frame({Pool::movable, 2 * kMiB, 0});
    ASSERT_TRUE(tier->populate(frame, false, nullptr).ok());
    fill(tier->landing(frame, window), 2 * kMiB, 1);
  }

  std::unique_ptr<DramTier> tier;
  std::byte* window = nullptr;
  FrameId frame;
};

thread_local sigjmp_buf after_bus;
std::atomic<int> bus_errors{0};
void on_bus(int) {
  ++bus_errors;
  siglongjmp(after_bus, 1);
}

TEST_F(FaultTest, a_touch_without_a_view_is_heard_of_and_poisoned_until_the_next_map) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_bus;
  action.sa_flags = SA_NODEFER;
  ASSERT_EQ(sigaction(SIGBUS, &action, &before), 0);
  bus_errors = 0;
  std::thread toucher([&] {
    if (sigsetjmp(after_bus, 1) == 0) {
      *const_cast<volatile std::byte*>(window + 12345) = std::byte{1};
    }
  });
  Fault fault;
  ASSERT_TRUE(tier->next_fault(10'000, fault));
  EXPECT_EQ((fault.address - window) / 4096, 12345 / 4096);
  EXPECT_TRUE(fault.write);
  EXPECT_TRUE(tier->poison(fault.address));
  toucher.join();
  EXPECT_EQ(bus_errors, 1);
  sigaction(SIGBUS, &before, nullptr);

  Mechanism used{};
  ASSERT_TRUE(tier->map(frame, window, used).ok());
  EXPECT_EQ(used, Mechanism::uffd_move);
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  EXPECT_EQ(tier->counters().faults, 1U);
  EXPECT_EQ(tier->counters().poisoned, 1U);
  ASSERT_TRUE(tier->unmap(frame, window).ok());
}

TEST_F(FaultTest, a_touch_during_a_move_in_sees_the_new_bytes) {
  std::uint64_t seen = 0;
  std::thread toucher([&] { std::memcpy(&seen, window + 8, 8); });
  Fault fault;
  ASSERT_TRUE(tier->next_fault(10'000, fault));
  std::uint64_t expected = 0;
  std::memcpy(&expected, tier->landing(frame, window) + 8, 8);
  Mechanism used{};
  ASSERT_TRUE(tier->map(frame, window, used).ok());
  EXPECT_FALSE(tier->poison(fault.address)) << "too late";
  toucher.join();
  EXPECT_EQ(seen, expected);
  ASSERT_TRUE(tier->unmap(frame, window).ok());
}

TEST_F(FaultTest, a_released_window_is_not_poisoned_for_the_next) {
  ASSERT_TRUE(tier->poison(window + 4096));
  tier->release_window(window, 4 * kMiB);
  auto next = tier->reserve_window(4 * kMiB, 2 * kMiB);
  ASSERT_EQ(*next, window);
  Mechanism used{};
  ASSERT_TRUE(tier->map(frame, window, used).ok());
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  ASSERT_TRUE(tier->unmap(frame, window).ok());
}

TEST_F(FaultTest, waiting_ends_by_timeout_and_by_stop) {
  Fault fault;
  EXPECT_FALSE(tier->next_fault(0, fault));
  std::thread reader([&] { EXPECT_FALSE(tier->next_fault(-1, fault)); });
  tier->stop_faults();
  reader.join();
  EXPECT_FALSE(tier->next_fault(-1, fault));
}

TEST(Dram, a_tier_without_faults_still_stops) {
  DramOptions options = small_options(16 * kMiB);
  options.userfault = false;
  auto tier = DramTier::create(options);
  ASSERT_TRUE(tier.ok());
  EXPECT_FALSE((*tier)->sees_faults());
  Fault fault;
  EXPECT_FALSE((*tier)->next_fault(0, fault));
  (*tier)->stop_faults();
  EXPECT_FALSE((*tier)->next_fault(-1, fault));
}

TEST(Dram, without_userfault_frames_are_remapped) {
  DramOptions options = small_options(16 * kMiB);
  options.userfault = false;
  auto tier = DramTier::create(options);
  ASSERT_TRUE(tier.ok());
  EXPECT_NE((*tier)->facts().windows, Mechanism::uffd_move);
  EXPECT_STRNE((*tier)->facts().move_reason, "");
  options.mechanism = Mechanism::uffd_move;
  EXPECT_EQ(DramTier::create(options).code(), Code::unsupported);
}

// Kernel refusals by a filter, in a child because filters stay.
bool refuse(bool also_remap) {
  constexpr std::uint32_t kDeviceNew = _IO(0xAA, 0x00);
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  if (also_remap) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL));
  }
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kDeviceNew, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// 0: the expected mechanism served and brought the bytes.
int serve_by(Mechanism expected) {
  auto made = DramTier::create(small_options(16 * kMiB));
  if (!made.ok() || (*made)->facts().windows != expected ||
      (*made)->facts().userfault.source != UserfaultSource::none ||
      std::strstr((*made)->facts().userfault.reason, "not permitted") == nullptr) {
    return 1;
  }
  DramTier& tier = **made;
  std::byte* const window = *tier.reserve_window(2 * kMiB, 2 * kMiB);
  const FrameId frame = tier.acquire_frame({Pool::movable, 2 * kMiB, 0});
  Mechanism used{};
  if (!tier.populate(frame, false, nullptr).ok()) {
    return 2;
  }
  fill(tier.landing(frame, window), 2 * kMiB, 1);
  if (!tier.map(frame, window, used).ok() || used != expected || !holds(window, 2 * kMiB, 1)) {
    return 3;
  }
  return tier.unmap(frame, window).ok() ? 0 : 4;
}

TEST(Dram, a_refused_userfaultfd_falls_to_remap_and_then_in_place) {
  for (const bool also_remap : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!refuse(also_remap)) {
        _exit(77);
      }
      _exit(serve_by(also_remap ? Mechanism::in_place : Mechanism::remap));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
      GTEST_SKIP() << "seccomp filters are refused";
    }
    EXPECT_EQ(WEXITSTATUS(status), 0) << (also_remap ? "in_place" : "remap");
  }
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Property: however many frames move over however large a window, the process grows by the budget
// at most, and the bytes stay right.
TEST(Dram, five_thousand_moves_grow_the_process_by_no_more_than_the_budget) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  constexpr std::uint64_t kExtents = 256;
  constexpr std::uint64_t kBudget = 64 * kMiB;
  for (const Mechanism mechanism : {Mechanism::uffd_move, Mechanism::remap, Mechanism::in_place}) {
    std::mt19937 random(seed);
    DramOptions options = small_options(kBudget);
    options.mechanism = mechanism;
    auto made = DramTier::create(options);
    if (!made.ok()) {
      continue;  // Said by the tests above.
    }
    DramTier& tier = **made;
    std::byte* const window = *tier.reserve_window(kExtents * 2 * kMiB, 2 * kMiB);
    const std::uint64_t before = resident_bytes();
    std::vector<std::pair<FrameId, std::uint64_t>> inside;  // Frame and extent.
    std::vector<bool> taken(kExtents, false);
    for (int move = 0; move < 5'000; ++move) {
      const FrameId frame = tier.acquire_frame({Pool::movable, 2 * kMiB, 0});
      if (!frame.valid()) {
        const std::size_t victim = random() % inside.size();
        const auto [gone, extent] = inside[victim];
        std::byte* const at = window + extent * 2 * kMiB;
        std::uint64_t first = 0;
        std::memcpy(&first, at, 8);
        ASSERT_EQ(first, extent + 1);
        ASSERT_TRUE(tier.unmap(gone, at).ok());
        tier.return_frame(gone);
        taken[extent] = false;
        inside[victim] = inside.back();
        inside.pop_back();
        continue;
      }
      std::uint64_t extent = random() % kExtents;
      while (taken[extent]) {
        extent = (extent + 1) % kExtents;
      }
      std::byte* const at = window + extent * 2 * kMiB;
      if (tier.needs_populate(frame)) {
        ASSERT_TRUE(tier.populate(frame, false, nullptr).ok());
      }
      const std::uint64_t first = extent + 1;
      std::memcpy(tier.landing(frame, at), &first, 8);
      Mechanism used{};
      ASSERT_TRUE(tier.map(frame, at, used).ok());
      taken[extent] = true;
      inside.emplace_back(frame, extent);
      ASSERT_LE(tier.books().used(), kBudget);
    }
    const std::uint64_t after = resident_bytes();
    EXPECT_LE(after, before + kBudget + kBudget / 10);
    EXPECT_GE(after, before + kBudget / 2) << "the measure measures nothing";
    for (const auto& [frame, extent] : inside) {
      ASSERT_TRUE(tier.unmap(frame, window + extent * 2 * kMiB).ok());
      tier.return_frame(frame);
    }
  }
}

// Several hands on different frames at once, the mover handing out and taking back.
TEST(Dram, hands_work_on_different_frames_at_once) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (const Mechanism mechanism : {Mechanism::uffd_move, Mechanism::remap, Mechanism::in_place}) {
    DramOptions options = small_options(64 * kMiB);
    options.mechanism = mechanism;
    auto made = DramTier::create(options);
    if (!made.ok()) {
      continue;
    }
    DramTier& tier = **made;
    for (int round = 0; round < 8; ++round) {
      struct Work {
        FrameId frame;
        std::byte* at;
        std::uint64_t bytes;
        Pool pool;
      };
      constexpr unsigned kHands = 4;
      std::vector<std::vector<Work>> work(kHands);
      std::vector<std::pair<std::byte*, std::uint64_t>> windows;
      for (unsigned i = 0; i < 24; ++i) {
        const std::uint64_t bytes = i % 3 == 0 ? 2 * kMiB : 64 * kKiB;
        const Pool pool = i % 3 == 2 ? Pool::locked : tier.window_pool(bytes);
        std::byte* at = nullptr;
        if (pool != Pool::locked) {
          at = *tier.reserve_window(bytes, bytes);
          windows.emplace_back(at, bytes);
        }
        const FrameId frame = tier.acquire_frame({pool, bytes, static_cast<std::uint32_t>(round)});
        ASSERT_TRUE(frame.valid());
        work[i % kHands].push_back({frame, at, bytes, pool});
      }
      std::atomic<int> wrong{0};
      std::vector<std::thread> hands;
      for (unsigned hand = 0; hand < kHands; ++hand) {
        hands.emplace_back([&, hand] {
          std::uint64_t what = hand * 1000;
          for (const Work& job : work[hand]) {
            ++what;
            Mechanism used{};
            wrong += tier.populate(job.frame, true, nullptr).ok() ? 0 : 1;
            std::byte* const landing = tier.landing(job.frame, job.at);
            fill(landing, job.bytes, what);
            wrong += tier.map(job.frame, job.at, used).ok() ? 0 : 1;
            wrong += holds(job.at != nullptr ? job.at : landing, job.bytes, what) ? 0 : 1;
            wrong += tier.unmap(job.frame, job.at).ok() ? 0 : 1;
          }
        });
      }
      for (std::thread& hand : hands) {
        hand.join();
      }
      EXPECT_EQ(wrong, 0);
      for (const auto& each : work) {
        for (const Work& job : each) {
          tier.return_frame(job.frame);
        }
      }
      for (const auto& [at, bytes] : windows) {
        tier.release_window(at, bytes);
      }
      // A hand trims while the others are idle, as the mover orders.
      tier.begin_trim(4 * kMiB);
      std::thread trimmer([&] { tier.run_trim(); });
      trimmer.join();
      tier.finish_trim();
      ASSERT_TRUE(tier.test_consistent());
    }
  }
}

}  // namespace
}  // namespace tiermem

// Touches of the host space's windows without a view, and kernels that refuse the calls that report
// such touches.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "dram_fixture.hpp"

namespace tiermem {
namespace {

// Touches without a view. SIGBUS is caught in the touching thread, which jumps out of the touch.
class FaultTest : public testing::TestWithParam<Mechanism> {
 protected:
  void SetUp() override {
    if (!moved.why_not.empty()) {
      GTEST_SKIP() << moved.why_not;
    }
  }

  MovedFrame moved{GetParam()};
  HostSpace* const space = moved.space.get();
  std::byte* const window = moved.window;
  const FrameId frame = moved.frame;
};

thread_local sigjmp_buf after_bus;
std::atomic<int> bus_errors{0};
void on_bus(int) {
  ++bus_errors;
  siglongjmp(after_bus, 1);
}

TEST_P(FaultTest, a_touch_without_a_view_is_heard_of_and_poisoned_until_the_next_map) {
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
  ASSERT_TRUE(space->next_fault(10'000, fault));
  EXPECT_EQ((fault.address - window) / 4096, 12345 / 4096);
  EXPECT_TRUE(fault.write);
  EXPECT_TRUE(space->poison(fault.address));
  toucher.join();
  EXPECT_EQ(bus_errors, 1);
  sigaction(SIGBUS, &before, nullptr);

  Mechanism used{};
  ASSERT_TRUE(space->map(frame, window, used).ok());
  EXPECT_EQ(used, GetParam());
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  EXPECT_EQ(space->counters().faults, 1U);
  EXPECT_EQ(space->counters().poisoned, 1U);
  ASSERT_TRUE(space->unmap(frame, window).ok());
}

TEST_P(FaultTest, a_touch_during_a_move_in_sees_the_new_bytes) {
  std::uint64_t seen = 0;
  std::thread toucher([&] { std::memcpy(&seen, window + 8, 8); });
  Fault fault;
  ASSERT_TRUE(space->next_fault(10'000, fault));
  std::uint64_t expected = 0;
  std::memcpy(&expected, space->bytes_at(frame, window) + 8, 8);
  Mechanism used{};
  ASSERT_TRUE(space->map(frame, window, used).ok());
  EXPECT_FALSE(space->poison(fault.address)) << "too late";
  toucher.join();
  EXPECT_EQ(seen, expected);
  ASSERT_TRUE(space->unmap(frame, window).ok());
}

TEST_P(FaultTest, a_released_window_is_not_poisoned_for_the_next) {
  ASSERT_TRUE(space->poison(window + 4096));
  space->release_window(window, 4 * kMiB);
  auto next = space->reserve_window(4 * kMiB, 2 * kMiB, false);
  ASSERT_EQ(*next, window);
  Mechanism used{};
  ASSERT_TRUE(space->map(frame, window, used).ok());
  EXPECT_TRUE(holds(window, 2 * kMiB, 1));
  ASSERT_TRUE(space->unmap(frame, window).ok());
}

TEST_P(FaultTest, waiting_ends_by_timeout_and_by_stop) {
  Fault fault;
  EXPECT_FALSE(space->next_fault(0, fault));
  std::thread reader([&] { EXPECT_FALSE(space->next_fault(-1, fault)); });
  space->stop_faults();
  reader.join();
  EXPECT_FALSE(space->next_fault(-1, fault));
}

TEST(Dram, a_space_without_faults_still_stops) {
  HostSpaceOptions options = small_options(16 * kMiB);
  options.userfault = UserfaultUse::off;
  options.mechanism = Mechanism::in_place;
  auto space = HostSpace::create(options);
  ASSERT_TRUE(space.ok());
  EXPECT_FALSE((*space)->maps());
  Fault fault;
  EXPECT_FALSE((*space)->next_fault(0, fault));
  (*space)->stop_faults();
  EXPECT_FALSE((*space)->next_fault(-1, fault));
}

INSTANTIATE_TEST_SUITE_P(By, FaultTest, testing::Values(Mechanism::uffd_move, Mechanism::copy));

TEST(Dram, without_userfault_frames_are_remapped) {
  HostSpaceOptions options = small_options(16 * kMiB);
  options.userfault = UserfaultUse::off;
  auto space = HostSpace::create(options);
  ASSERT_TRUE(space.ok());
  EXPECT_NE((*space)->facts().windows, Mechanism::uffd_move);
  EXPECT_STRNE((*space)->facts().move_reason, "");
  options.mechanism = Mechanism::uffd_move;
  EXPECT_EQ(HostSpace::create(options).code(), Code::unsupported);
}

// In a child, because filters stay: makes the kernel refuse these calls.
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

// Returns 0 if the expected mechanism served the touch and delivered the bytes.
int serve_by(Mechanism expected) {
  auto made = HostSpace::create(small_options(16 * kMiB));
  if (!made.ok() || (*made)->facts().windows != expected ||
      (*made)->facts().userfault.source != UserfaultSource::none ||
      std::strstr((*made)->facts().userfault.reason, "not permitted") == nullptr) {
    return 1;
  }
  HostSpace& space = **made;
  std::byte* const window = *space.reserve_window(2 * kMiB, 2 * kMiB, false);
  const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
  Mechanism used{};
  if (!space.memory().populate(frame, false, nullptr).ok()) {
    return 2;
  }
  fill(space.bytes_at(frame, window), 2 * kMiB, 1);
  if (!space.map(frame, window, used).ok() || used != expected || !holds(window, 2 * kMiB, 1)) {
    return 3;
  }
  return space.unmap(frame, window).ok() ? 0 : 4;
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

}  // namespace
}  // namespace tiermem

// A double of the kernel that answers calls which move pages with each errno, for any number of
// calls. Every operation on a frame must end. A read afterwards gives the frame's bytes or nothing
// (SIGBUS), and never other bytes.
#include "tier/refused_calls.hpp"

#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <ostream>

#include "unit/dram_fixture.hpp"

namespace {

enum class Call : std::uint8_t { none, move, copy, zero, remap, drop };

// Changed only while no thread makes such calls.
Call g_refused = Call::none;
int g_error = 0;

// Returns true, with errno, if the call is refused.
bool refuses(Call call) {
  if (call != g_refused) {
    return false;
  }
  errno = g_error;
  return true;
}

constexpr unsigned long kMove = 0xc028aa05;  // UFFDIO_MOVE of Linux 6.8.

}  // namespace

// This program's own functions take precedence over libc's.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const Call call = request == kMove             ? Call::move
                    : request == UFFDIO_COPY     ? Call::copy
                    : request == UFFDIO_ZEROPAGE ? Call::zero
                                                 : Call::none;
  if (call != Call::none && refuses(call)) {
    // Like the kernel when it has done nothing.
    auto* const done = reinterpret_cast<std::int64_t*>(
        static_cast<char*>(argument) +
        (call == Call::zero ? offsetof(uffdio_zeropage, zeropage) : offsetof(uffdio_copy, copy)));
    *done = -g_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

extern "C" void* mremap(void* from, std::size_t had, std::size_t bytes, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const to = va_arg(rest, void*);
  va_end(rest);
  return refuses(Call::remap)
             ? MAP_FAILED
             : reinterpret_cast<void*>(syscall(SYS_mremap, from, had, bytes, flags, to));
}

extern "C" int madvise(void* at, std::size_t bytes, int advice) noexcept {
  const bool drops = advice == MADV_DONTNEED || advice == 24;  // MADV_DONTNEED_LOCKED
  return drops && refuses(Call::drop) ? -1
                                      : static_cast<int>(syscall(SYS_madvise, at, bytes, advice));
}

// No other thread could end a refusal. On a busy machine, the yields of all tries would take
// minutes.
extern "C" int sched_yield() noexcept {
  return 0;
}

namespace tiermem {
namespace {

constexpr int kLastError = 133;  // EHWPOISON

constexpr std::uint64_t kBytes = 64 * kKiB;  // The size of a frame: sixteen pages.

/// The double refuses calls while this lives.
class Refusing {
 public:
  Refusing(Call call, int error) {
    g_error = error;
    g_refused = call;
  }
  ~Refusing() { g_refused = Call::none; }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
};

sigjmp_buf g_after_bus;
void on_bus(int) {
  siglongjmp(g_after_bus, 1);
}

[[gnu::noinline]] bool differs(const std::byte* page, const std::byte* expected) {
  return sigsetjmp(g_after_bus, 1) == 0 && std::memcmp(page, expected, host::kPage) != 0;
}

// Checks that the window shows the frame's bytes and no others. No thread serves faults here, so
// absent pages are skipped.
bool nothing_else(const std::byte* window, std::uint64_t bytes) {
  static std::byte expected[kBytes];
  fill(expected, bytes, 1);
  for (std::uint64_t at = 0; at < bytes; at += host::kPage) {
    unsigned char there = 0;
    const bool absent =
        mincore(const_cast<std::byte*>(window + at), host::kPage, &there) != 0 || (there & 1) == 0;
    if (!absent && differs(window + at, expected + at)) {
      return false;
    }
  }
  return true;
}

struct Case {
  Mechanism mechanism;
  Call call;
  const char* name;
  friend std::ostream& operator<<(std::ostream& out, const Case& of) { return out << of.name; }
};

class RefusedCalls : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RefusedCall::pause_between = std::chrono::microseconds(0);
    struct sigaction action {};
    action.sa_handler = on_bus;
    sigaction(SIGBUS, &action, &before_);
  }
  void TearDown() override {
    sigaction(SIGBUS, &before_, nullptr);
    RefusedCall::pause_between = std::chrono::milliseconds(1);
  }
  struct sigaction before_ {};
};

// Also with one page's protection changed, so that pages move one by one.
TEST_P(RefusedCalls, a_frame_leaves_and_comes_back_or_stays_with_its_bytes_for_each_errno) {
  for (int error = 1; error <= kLastError; ++error) {
    for (const bool is_protected : {false, true}) {
      if (error == EAGAIN && GetParam().call == Call::copy) {
        continue;  // The call is made eight million times, so the test below covers it once.
      }
      MovedFrame moved(GetParam().mechanism, kBytes, true);
      if (!moved.why_not.empty()) {
        GTEST_SKIP() << moved.why_not;
      }
      HostSpace& space = *moved.space;
      Mechanism used{};
      ASSERT_TRUE(space.map(moved.frame, moved.window, used).ok());
      if (is_protected) {
        ASSERT_EQ(mprotect(moved.window + 5 * host::kPage, host::kPage, PROT_READ), 0);
      }
      Status left, back;
      {
        const Refusing refusing(GetParam().call, error);
        left = space.withdraw(moved.frame, moved.window);
        if (left.ok()) {
          back = space.restore(moved.frame, moved.window);
        }
      }
      EXPECT_TRUE(nothing_else(moved.window, kBytes)) << "errno " << error;
      if (!left.ok()) {
        // Without UFFDIO_COPY, bytes that were taken out of a protected page cannot be put back.
        const bool lacks_page = is_protected && GetParam().call == Call::copy;
        EXPECT_TRUE(holds(moved.window, 5 * host::kPage, 1)) << "it stayed; errno " << error;
        EXPECT_TRUE(lacks_page || holds(moved.window, kBytes, 1)) << "it stayed; errno " << error;
      }
    }
  }
}

TEST_P(RefusedCalls, a_frame_comes_or_is_given_up_for_each_errno) {
  for (int error = 1; error <= kLastError; ++error) {
    MovedFrame moved(GetParam().mechanism, kBytes, true);
    if (!moved.why_not.empty()) {
      GTEST_SKIP() << moved.why_not;
    }
    Mechanism used{};
    Status mapped, gone;
    {
      const Refusing refusing(GetParam().call, error);
      mapped = moved.space->map(moved.frame, moved.window, used);
    }
    EXPECT_TRUE(nothing_else(moved.window, kBytes)) << "errno " << error;
    if (mapped.ok()) {
      const Refusing refusing(GetParam().call, error);
      gone = moved.space->unmap(moved.frame, moved.window);
    }
    EXPECT_TRUE(nothing_else(moved.window, kBytes)) << "errno " << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, RefusedCalls,
                         testing::Values(Case{Mechanism::uffd_move, Call::move, "move"},
                                         Case{Mechanism::uffd_move, Call::copy, "copy"},
                                         Case{Mechanism::uffd_move, Call::zero, "zero"},
                                         Case{Mechanism::uffd_move, Call::remap, "remap"},
                                         Case{Mechanism::uffd_move, Call::drop, "drop"},
                                         Case{Mechanism::copy, Call::copy, "copies_copy"},
                                         Case{Mechanism::copy, Call::zero, "copies_zero"},
                                         Case{Mechanism::copy, Call::remap, "copies_remap"},
                                         Case{Mechanism::copy, Call::drop, "copies_drop"}),
                         [](const auto& of) { return of.param.name; });

TEST(RefusedCall, each_errno_is_answered_so_often_and_no_more) {
  RefusedCall::pause_between = std::chrono::microseconds(0);
  for (int error = 1; error <= kLastError; ++error) {
    RefusedCall refused;
    unsigned long tries = 0;
    while (refused.again(error) && tries < 1'000'000) {
      ++tries;
    }
    EXPECT_GE(tries, 50u) << error;
    EXPECT_LE(tries, 60'000u) << error;
    EXPECT_FALSE(refused.again(error)) << error;
    refused.succeeded();
    EXPECT_TRUE(refused.again(error)) << error;
  }
  RefusedCall::pause_between = std::chrono::milliseconds(1);
}

}  // namespace
}  // namespace tiermem

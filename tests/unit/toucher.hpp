// A thread that touches an absent page of a window and waits, and a function that brings a page
// without waking the thread. For tests of the calls that let the thread continue.
#pragma once

#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "dram_fixture.hpp"
#include "os/host_memory.hpp"
#include "support/threads.hpp"

namespace tiermem {

inline thread_local sigjmp_buf t_after_signal;
inline void end_touch(int signal) {
  siglongjmp(t_after_signal, signal);
}

/// Writes one byte of an absent page from its own thread. The thread ends when the write has
/// succeeded, or has raised the signal: SIGBUS, or where the test says so SIGSEGV, which is also
/// how memory that is closed reports touches.
class Toucher {
 public:
  explicit Toucher(std::byte* at, int signal = SIGBUS) : signal_(signal) {
    struct sigaction action {};
    action.sa_handler = end_touch;
    action.sa_flags = SA_NODEFER;
    sigaction(signal_, &action, &before_);
    thread_ = std::thread([this, at] {
      const int got = sigsetjmp(t_after_signal, 1);
      if (got == 0) {
        *const_cast<volatile std::byte*>(at) = std::byte{7};
      }
      end_ = got == SIGBUS ? End::bus_error : got == SIGSEGV ? End::access_error : End::went_on;
    });
  }
  ~Toucher() {
    if (!test::comes_true([&] { return end_ != End::none; })) {
      ADD_FAILURE() << "the thread was not woken";
      std::abort();  // A thread that was not woken cannot be joined.
    }
    thread_.join();
    sigaction(signal_, &before_, nullptr);
  }
  Toucher(const Toucher&) = delete;
  Toucher& operator=(const Toucher&) = delete;
  bool goes_on() const {
    return test::comes_true([&] { return end_ == End::went_on; });
  }
  bool gets_bus_error() const {
    return test::comes_true([&] { return end_ == End::bus_error; });
  }
  bool gets_access_error() const {
    return test::comes_true([&] { return end_ == End::access_error; });
  }
  bool waits() const { return end_ == End::none; }

 private:
  enum class End { none, went_on, bus_error, access_error };
  std::atomic<End> end_{End::none};
  const int signal_;
  std::thread thread_;
  struct sigaction before_ {};
};

/// Brings bytes to an absent page without waking waiting threads.
inline int bring_silently(const HostSpace& space, std::byte* page, const std::byte* from) {
  uffdio_copy call{};
  call.dst = reinterpret_cast<std::uint64_t>(page);
  call.src = reinterpret_cast<std::uint64_t>(from);
  call.len = host::kPage;
  call.mode = UFFDIO_COPY_MODE_DONTWAKE;
  return ioctl(space.fault_fd(), UFFDIO_COPY, &call);
}

}  // namespace tiermem

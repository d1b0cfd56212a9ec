// Pages locked for I/O by registration with a ring, as in a program with registered buffers. One
// thread.
#pragma once

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace tiermem::test {

class LockedPages {
 public:
  LockedPages(void* address, std::size_t bytes) {
    io_uring_params params{};
    ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &params));
    const iovec locked{address, bytes};
    if (ring_ < 0 ||
        ::syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS, &locked, 1) != 0) {
      why_not_ = std::string("io_uring: ") + std::strerror(errno);
    }
  }
  ~LockedPages() { release(); }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;

  /// "" if they are locked.
  const std::string& why_not() const { return why_not_; }
  void release() {
    if (ring_ >= 0) {
      (void)::syscall(SYS_io_uring_register, ring_, IORING_UNREGISTER_BUFFERS, nullptr, 0);
      ::close(ring_);
      ring_ = -1;
    }
  }

 private:
  int ring_ = -1;
  std::string why_not_;
};

}  // namespace tiermem::test

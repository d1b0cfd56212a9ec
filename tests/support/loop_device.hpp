// A block device over a file of the test. Used by one thread; ends with the object.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace tiermem::test {

class LoopDevice {
 public:
  /// Uses the file `backing`, which is created or truncated to `bytes`.
  LoopDevice(const std::string& backing, std::uint64_t bytes) {
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
    const int file = ::open(backing.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    path_ = "/dev/loop" + std::to_string(number);
    fd_ = number < 0 ? -1 : ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    attached_ = fd_ >= 0 && file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
                ::ioctl(fd_, LOOP_SET_FD, file) == 0;
    if (!attached_) {
      why_not_ = std::string("no loop device: ") + std::strerror(errno);
    }
    ::close(file);
    ::close(control);
  }
  ~LoopDevice() {
    if (attached_) {
      (void)::ioctl(fd_, LOOP_CLR_FD, 0);
    }
    ::close(fd_);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;
  /// Why no device is available, so that the test is skipped. "" if there is one.
  const std::string& why_not() const { return why_not_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_, why_not_;
  int fd_ = -1;
  bool attached_ = false;
};

}  // namespace tiermem::test

// Chooses between the io_uring port and the thread port once, at start. Any thread.

#include "os/waitable_io_port.hpp"

#include <unistd.h>

#include <cerrno>

#include "os/thread_port.hpp"
#include "os/uring_port.hpp"

namespace tiermem {

std::int32_t WaitableIoPort::read_file(const std::vector<std::unique_ptr<BlockFile>>& devices,
                                       const IoRequest& request) {
  const int fd = request.fd >= 0 ? request.fd : devices[request.device]->fd(request.buffered);
  const ssize_t n = ::pread(fd, request.data, request.length, static_cast<off_t>(request.offset));
  return n < 0 ? -errno : static_cast<std::int32_t>(n);
}

std::unique_ptr<WaitableIoPort> make_io_port(std::vector<std::unique_ptr<BlockFile>> devices,
                                             const PortOptions& options, std::string& reason) {
  reason.clear();
  if (options.engine == Engine::threads) {
    reason = "threads were asked for";
  } else {
    // The devices are unchanged unless the ring works.
    std::unique_ptr<WaitableIoPort> ring = make_uring_port(devices, options, reason);
    if (ring != nullptr || options.require) {
      return ring;
    }
  }
  auto threads = std::make_unique<ThreadPort>(std::move(devices), options, reason);
  if (!threads->works()) {
    reason += reason.empty() ? "" : "; ";
    reason += "no thread can be created (RLIMIT_NPROC or pids.max)";
    return nullptr;
  }
  return threads;
}

}  // namespace tiermem

// An IoPort that its owner can sleep on, and the choice of one: io_uring if the kernel allows it,
// else threads, with the reason recorded. The ports decide nothing about slots or budgets.
//
// Threads: one thread, the owner, submits, flushes, reaps and waits; the first such call makes a
// thread the owner. Any thread may call wake. grow blocks; it is for a worker, one call at a time
// for each device. The destructor waits for the requests in flight. It may run on another thread
// once the owner has stopped calling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "os/block_file.hpp"
#include "os/io_port.hpp"

namespace tiermem {

class WaitableIoPort : public IoPort {
 protected:
  /// IoPort::read_here() for a port that has these devices.
  static std::int32_t read_file(const std::vector<std::unique_ptr<BlockFile>>& devices,
                                const IoRequest& request);

 public:
  /// [owner] Submits queued requests to the kernel. Sleeps until a completion can be reaped, wake()
  /// was called since the last wait(), or CLOCK_MONOTONIC reaches `deadline_ns` (negative: never).
  /// It may return early, for example after a signal. It uses no CPU while nothing happens.
  virtual void wait(std::int64_t deadline_ns) = 0;
  /// [any] Ends the current wait, or the next one. Costs one atomic exchange unless the owner
  /// sleeps.
  virtual void wake() = 0;
  /// Makes wait() also return while `fd` is readable. Call before the first wait(). Returns false
  /// if the port cannot do this; another thread must then read `fd`. The descriptor must outlive
  /// the port's last wait().
  virtual bool watch(int fd) = 0;
  /// [child of fork, its only thread] Releases the port's share in resources of the parent and
  /// returns the devices. The parent's requests continue. Only the destructor may follow.
  virtual std::vector<std::unique_ptr<BlockFile>> leave() = 0;
  /// "io_uring" or "threads".
  virtual const char* engine() const = 0;
  /// Returns why this engine was chosen instead of a better one; empty if it is the best one.
  virtual const char* reason() const = 0;
};

enum class Engine : std::uint8_t { automatic, io_uring, threads };

struct PortOptions {
  /// Max requests in progress for each device, and the same number for files read by descriptor.
  /// submit returns false above the sum.
  unsigned depth = 16;
  Engine engine = Engine::automatic;
  bool require = false;  ///< Fail without io_uring, instead of using threads.
  unsigned threads = 4;  ///< Max number of threads of the engine that has threads.
};

/// Creates a port, which owns the devices. Cookie ~0 is reserved for the port. Returns nullptr only
/// if io_uring is required and refused, or if no thread can be created. `reason` says why in one
/// sentence in these cases, and if threads replace io_uring; else it is empty.
std::unique_ptr<WaitableIoPort> make_io_port(std::vector<std::unique_ptr<BlockFile>> devices,
                                             const PortOptions& options, std::string& reason);

}  // namespace tiermem

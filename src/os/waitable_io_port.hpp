// An IoPort that its owner can sleep on, and how one is chosen: io_uring where the kernel lets us,
// else threads with the reason recorded. The ports decide nothing about slots or budgets.
//
// Threads: one thread, the owner, submits, flushes, reaps and waits; the first such call makes a
// thread the owner. wake is for any thread. grow blocks and is for a hand, one at a time per
// device. Destroying a port waits for the requests in flight; it may happen on another thread once
// the owner has stopped calling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "os/block_file.hpp"
#include "os/io_port.hpp"

namespace tiermem {

class WaitableIoPort : public IoPort {
 public:
  /// [owner] Hands queued requests to the kernel and sleeps until a completion can be reaped,
  /// wake() was called since the last wait(), or CLOCK_MONOTONIC reaches `deadline_ns` (negative:
  /// never). May return early for no reason (a signal); burns no CPU while nothing happens.
  virtual void wait(std::int64_t deadline_ns) = 0;
  /// [any] Ends the current wait, or the next one. Costs an atomic exchange unless the owner
  /// sleeps.
  virtual void wake() = 0;
  /// Before the first wait(): it returns from now on also while `fd` is readable. False: it cannot,
  /// and somebody else must read it. The descriptor outlives the port's last wait().
  virtual bool watch(int fd) = 0;
  /// [child of fork, its only thread] Lets go of what it shares with the parent, whose requests go
  /// on, and gives the devices back. Only the destructor may follow.
  virtual std::vector<std::unique_ptr<BlockFile>> leave() = 0;
  /// "io_uring" or "threads".
  virtual const char* engine() const = 0;
  /// Why this engine and not a better one; empty when it is the best one.
  virtual const char* reason() const = 0;
};

enum class Engine : std::uint8_t { automatic, io_uring, threads };

struct PortOptions {
  /// Requests under way per device, and as many for files read by descriptor; submit answers false
  /// above the sum.
  unsigned depth = 16;
  Engine engine = Engine::automatic;
  bool require = false;  ///< Without io_uring no port, instead of threads.
  unsigned threads = 4;  ///< Of the engine that has some, at most.
};

/// Takes the devices over; cookie ~0 is the port's own. nullptr only if io_uring is required and
/// refused, or the system gives no thread. `reason` then, and where threads had to do, says why in
/// one sentence; else it is empty.
std::unique_ptr<WaitableIoPort> make_io_port(std::vector<std::unique_ptr<BlockFile>> devices,
                                             const PortOptions& options, std::string& reason);

}  // namespace tiermem

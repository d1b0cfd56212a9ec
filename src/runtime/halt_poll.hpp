// Keeps the processor of a thread that waits for bytes out of its halt. A virtual machine's
// processor that has halted is woken through its host, which costs up to the time of the read
// itself; a thread of the idle class that spins there gives way to the waiting one at once, and to
// everybody else. What `guest_halt_poll_ns` of the kernel's haltpoll driver does for all processors
// where an administrator sets it (Documentation/virt/guest-halt-polling.rst), this does for one.
//
// Threads: one calls everything; the spinner is this class's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tiermem {

/// The processor that a thread of this process ran on last; -1 when /proc does not tell.
int processor_of(std::uint32_t thread);

class HaltPoll {
 public:
  HaltPoll() = default;
  ~HaltPoll() { stop(); }

  /// Starts the spinner, which sleeps. Without a thread, or without the idle class, the other calls
  /// do nothing.
  void start();
  void stop();
  /// In a child of fork, where no spinner is.
  void forget();

  /// Until then (CLOCK_MONOTONIC, nanoseconds) the processor does not halt, unless other threads
  /// want it.
  void spin_until(std::int64_t until);
  /// On that processor; -1: on any.
  void move_to(int processor) { processor_.store(processor, std::memory_order_relaxed); }

 private:
  void run();
  void wake();
  bool spins(std::int64_t now) const;

  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> until_{0};
  std::atomic<std::int64_t> rests_until_{0};  // Other threads wanted the processor.
  std::atomic<int> processor_{-1};
  std::atomic<int> asleep_{0};  // What the spinner waits on; whoever clears it wakes it.
  std::thread thread_;
};

}  // namespace tiermem

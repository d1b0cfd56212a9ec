// Keeps the processor of a thread that waits for bytes from halting. Waking a halted processor of a
// virtual machine goes through the host and costs up to as much as the read itself. A thread of the
// idle class spins there instead. It gives way at once to the waiting thread and to all others. The
// kernel's haltpoll driver does the same for all processors if an administrator sets
// `guest_halt_poll_ns` (Documentation/virt/guest-halt-polling.rst); this class does it for one.
//
// Threads: one calls everything; the spinning thread belongs to this class.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tiermem {

/// The processor that a thread of this process last ran on; -1 if /proc does not tell.
int processor_of(std::uint32_t thread);

class HaltPoll {
 public:
  HaltPoll() = default;
  ~HaltPoll() { stop(); }

  /// Starts the spinning thread, asleep. Without a thread, or without the idle class, the other
  /// calls do nothing.
  void start();
  void stop();
  /// Call it in a child of fork, which has no such thread.
  void forget();

  /// Keeps the processor from halting until `until` (CLOCK_MONOTONIC, nanoseconds), unless other
  /// threads want it.
  void spin_until(std::int64_t until);
  /// Chooses the processor; -1: any.
  void move_to(int processor) { processor_.store(processor, std::memory_order_relaxed); }

 private:
  void run();
  void wake();
  bool spins(std::int64_t now) const;

  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> until_{0};
  std::atomic<std::int64_t> rests_until_{0};  // Set when other threads wanted the processor.
  std::atomic<int> processor_{-1};
  std::atomic<int> asleep_{0};  // The spinning thread waits on it; clearing it wakes the thread.
  std::thread thread_;
};

}  // namespace tiermem

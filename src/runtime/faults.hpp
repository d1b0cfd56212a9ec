// Touches of absent pages. In a mapped buffer the extent is requested from the mover, and the
// toucher continues when it is resident. Runs of extents and steps of equal width are read ahead.
// Elsewhere a touch without a view is a mistake of the program, and raises SIGBUS.
//
// Threads: one runs `run`, or the mover's thread serves waiting faults, or each touching thread its
// own, one at a time. The thread that steps the mover ends the requests. Any thread adds, removes
// and reads counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "mover/request.hpp"
#include "policy/streams.hpp"
#include "policy/strides.hpp"
#include "residency/residency.hpp"
#include "runtime/fork.hpp"
#include "tier/file.hpp"
#include "tier/host_space.hpp"

namespace tiermem {

class Faults {
 public:
  /// Passes a request to the mover. Its on_done may run before this returns.
  using Post = void (*)(void*, Request&);

  using Clock = std::int64_t (*)();  ///< Nanoseconds.
  /// Called with the reason before a toucher gets SIGBUS. The mover's thread.
  using Refusal = void (*)(const char* why);

  Faults(Residency& residency, Post post, void* argument, Clock clock)
      : residency_(residency), post_(post), argument_(argument), clock_(clock) {}

  /// Call it once, before all other functions.
  void attach(HostSpace& space, std::uint64_t ahead_bytes) {
    space_ = &space;
    ahead_bytes_ = ahead_bytes;
  }
  /// Call it before a file is adopted: messages name the file.
  void attach(const FileTier& files) { files_ = &files; }
  void on_refusal(Refusal refusal) { refusal_.store(refusal, std::memory_order_release); }
  /// Serves faults inside the gate, one by one, until the tier stops them.
  void run(ForkGate& gate);
  /// Replaces run(): touches are signals, and the touching thread answers its own, with the mover
  /// to itself. Returns false if the touch must raise SIGBUS.
  bool answer_own(const Fault& fault);
  /// Replaces run(): the thread that sleeps on the tier's descriptor calls it repeatedly. Begins to
  /// serve up to `most` waiting faults.
  void serve_waiting(unsigned most);

  /// A mapped buffer begins at `window`. Call remove() before the window is released.
  void add(Handle buffer, std::byte* window, std::uint32_t extents, std::uint8_t shift);
  void remove(std::byte* window);

  /// [any] Returns the mapped buffer with the address in its window, and the window's begin, or 0.
  Handle find_mapped(const std::byte* address, std::byte*& begin);

  std::uint64_t poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
  std::uint64_t served() const { return served_.load(std::memory_order_relaxed); }
  /// The thread of the newest touch; 0 if the kernel does not report it. For the serving thread.
  std::uint32_t last_thread() const {
    return last_thread_.load(std::memory_order_relaxed);  // A hint: nothing depends on its order.
  }
  /// Number of touches being served.
  std::uint64_t waiting() const { return served() - ended_.load(std::memory_order_relaxed); }
  std::uint64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }
  /// The part of waited_ns() during which other bytes had to leave.
  std::uint64_t waited_for_room_ns() const {
    return waited_for_room_ns_.load(std::memory_order_relaxed);
  }

 private:
  struct Window {
    Handle buffer = 0;
    std::uint32_t extents = 0;
    std::uint8_t shift = 0;
  };
  static constexpr std::uint32_t kMostSteps = 32;  // Maximum number of steps read ahead.
  struct Asked : InArena {
    Request request;
    Faults* faults = nullptr;
    std::byte* address = nullptr;
    std::int64_t since_ns = 0;
    bool was_there = false;  // Whether the extent was resident when the fault was read.
  };

  // Call it with mutex_ held. Returns the start of the mapped buffer at the address, or null.
  std::byte* find(std::byte* address, Window& window) const;
  void answer(const Fault& fault);
  void allow_writes(std::byte* address);
  void refuse_store(const Fault& fault);
  void serve(const Fault& fault, const Window& window, std::byte* begin);
  void read_steps(const Window& window, const Strides::Ahead& ahead);
  void ended(Asked& asked);
  Access byte_at(const Window& window, std::uint64_t in_window) const;
  void read_again(const Asked& asked);
  void touch_failed(std::byte* address, const Status& why);
  void refuse(std::byte* address);
  void mistake(std::byte* address);
  // Returns the buffer with the address in its window, and the offset in the window; null: none.
  BufferRecord* buffer_of(std::byte* address, std::uint64_t& in_window) const;

  Residency& residency_;
  const Post post_;
  void* const argument_;
  const Clock clock_;
  HostSpace* space_ = nullptr;
  const FileTier* files_ = nullptr;
  std::uint64_t ahead_bytes_ = 0;

  std::mutex mutex_;  // Guards windows_.
  Map<std::byte*, Window> windows_;

  Streams streams_;  // Used by the thread that answers faults.
  Strides strides_;
  std::atomic<std::uint32_t> last_thread_{0};  // Written by the thread that serves faults.
  std::atomic<Refusal> refusal_{nullptr};
  std::atomic<std::uint64_t> poisoned_{0}, served_{0}, ended_{0}, waited_ns_{0},
      waited_for_room_ns_{0};
};

}  // namespace tiermem

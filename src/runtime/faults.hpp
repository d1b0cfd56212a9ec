// Touches of absent pages. In a mapped buffer the extent is asked of the mover, and the toucher
// goes on when it is there; runs of extents and steps of equal width are read ahead. Anywhere else
// a touch without a view is the program's mistake, and SIGBUS.
//
// Threads: one runs `run`, or the mover's serves what waits; the mover ends what it asked for; any
// thread adds, removes and reads counts.
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
#include "tier/dram.hpp"

namespace tiermem {

class Faults {
 public:
  /// Hands a request over to the mover. Its on_done may run before this returns.
  using Post = void (*)(void*, Request&);

  using Clock = std::int64_t (*)();  ///< Nanoseconds.
  /// Told why a toucher is about to get SIGBUS, before it does. The mover's thread.
  using Refusal = void (*)(const char* why);

  Faults(Residency& residency, Post post, void* argument, Clock clock)
      : residency_(residency), post_(post), argument_(argument), clock_(clock) {}

  /// Once, before anything else.
  void attach(DramTier& dram, std::uint64_t ahead_bytes) {
    dram_ = &dram;
    ahead_bytes_ = ahead_bytes;
  }
  void on_refusal(Refusal refusal) { refusal_.store(refusal, std::memory_order_release); }
  /// Until the tier stops its faults; each is served inside the gate.
  void run(ForkGate& gate);
  /// Instead of run(), again and again by the thread that sleeps on the tier's descriptor: begins
  /// to serve what waits, at most so many.
  void serve_waiting(unsigned most);

  /// A mapped buffer begins at `window`; it ends there before the window is released.
  void add(Handle buffer, std::byte* window, std::uint32_t extents, std::uint8_t shift);
  void remove(std::byte* window);

  std::uint64_t poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
  std::uint64_t served() const { return served_.load(std::memory_order_relaxed); }
  /// Of the newest touch; 0 when the kernel does not tell. For the thread that serves.
  std::uint32_t last_thread() const {
    return last_thread_.load(std::memory_order_relaxed);  // A hint: nothing depends on its order.
  }
  /// Touches that are being served.
  std::uint64_t waiting() const { return served() - ended_.load(std::memory_order_relaxed); }
  std::uint64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }
  /// The part of it in which other memory had to leave first.
  std::uint64_t waited_for_room_ns() const {
    return waited_for_room_ns_.load(std::memory_order_relaxed);
  }

 private:
  struct Window {
    Handle buffer = 0;
    std::uint32_t extents = 0;
    std::uint8_t shift = 0;
  };
  static constexpr std::uint32_t kMostSteps = 32;  // That are read ahead.
  struct Asked : InArena {
    Request request;
    Faults* faults = nullptr;
    std::byte* address = nullptr;
    std::int64_t since_ns = 0;
    bool was_there = false;  // The extent, when the fault was read.
  };

  // With mutex_: the mapped buffer at an address, and where it begins; nullptr if there is none.
  std::byte* find(std::byte* address, Window& window) const;
  void answer(const Fault& fault);
  void allow_writes(std::byte* address);
  void refuse_store(const Fault& fault);
  void serve(const Fault& fault, const Window& window, std::byte* begin);
  void read_steps(const Window& window, const Strides::Ahead& ahead);
  void ended(Asked& asked);
  void refuse(std::byte* address);
  void mistake(std::byte* address);
  // The buffer whose window has the address, and where in the window; null: none.
  BufferRecord* buffer_of(std::byte* address, std::uint64_t& in_window) const;

  Residency& residency_;
  const Post post_;
  void* const argument_;
  const Clock clock_;
  DramTier* dram_ = nullptr;
  std::uint64_t ahead_bytes_ = 0;

  std::mutex mutex_;  // Guards windows_.
  Map<std::byte*, Window> windows_;

  Streams streams_;  // Of the thread that reads faults.
  Strides strides_;
  std::atomic<std::uint32_t> last_thread_{0};  // Written by the thread that serves faults.
  std::atomic<Refusal> refusal_{nullptr};
  std::atomic<std::uint64_t> poisoned_{0}, served_{0}, ended_{0}, waited_ns_{0},
      waited_for_room_ns_{0};
};

}  // namespace tiermem

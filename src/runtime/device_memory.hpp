// Memory of a GPU by pointer, as from cudaMalloc. A block is a buffer at a run of device addresses
// that never change; a view holds it there from its allocation to its end. Sets of blocks, named by
// a tag, leave the device while they are paused, and return to the same addresses.
//
//           pause                mover: all have left, or could not
//   held ──────────▶ leaving ─────────────────────────────────────▶ paused
//    ▲                          mover: all have arrived               │
//    └──────────────────────────────────────── coming ◀───────────────┘ resume
//                                                 └──▶ paused: some could not come
//
// Threads: any. There is one mutex, which the mover's thread also takes at the end of a pause or
// resume. No thread waits while it holds the mutex.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>

#include "base/arena.hpp"
#include "mover/request.hpp"
#include "residency/label.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

class DeviceMemory {
 public:
  struct Block {
    std::byte* begin = nullptr;
    std::uint64_t bytes = 0;
    bool held = false;  ///< Its bytes are on the device and stay there.
  };
  /// Totals over all blocks.
  struct Books {
    /// `paused`: the part of `bytes` that is not held.
    std::uint64_t blocks = 0, bytes = 0, paused = 0;
  };

  explicit DeviceMemory(Context::Impl& context) : context_(context) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // See Context::malloc_at, free_ptr, gpu_pause and gpu_resume.
  Result<void*> allocate(Place gpu, std::uint64_t bytes, std::uint64_t align);
  Status free(void* block, const StreamOrder& after = {});
  Result<OpHandle> pause(const char* tag, std::uint64_t bytes, const StreamOrder& after);
  Result<OpHandle> resume(const char* tag, std::uint64_t bytes);

  /// Finds the block that contains the address.
  std::optional<Block> find(const void* inside) const;
  Books books() const;
  /// [child of fork, its only thread] Another thread of the parent may have held the mutex.
  void follow_fork() { new (&mutex_) std::mutex; }

 private:
  enum class State : std::uint8_t { held, leaving, paused, coming };
  struct Entry {
    Handle buffer = 0;
    std::uint64_t bytes = 0;
    Place place{};
    std::uint64_t number = 0;  // Order of allocation.
    Label::Text tag;
    State state = State::held;
    bool freed = false;  // The program freed it while it was moving; the end of the move drops it.
    ViewRecord view{};   // Valid while it is held.
  };
  using Entries = Map<std::uintptr_t, Entry>;
  // The blocks of one pause or resume under way.
  struct Trip {
    DeviceMemory* memory = nullptr;
    std::list<Trip, ArenaAllocator<Trip>>::iterator self;
    Vector<Entries::iterator> blocks;
    Vector<ViewRecord> views;  // For a resume; the mover fills them.
  };
  using Trips = std::list<Trip, ArenaAllocator<Trip>>;

  Status choose(const char* call, const char* tag, std::uint64_t bytes, State from, Trip& trip);
  Status nothing_tagged(const char* call, const char* tag) const;
  class HeldTrip;
  Result<OpHandle> start(const char* call, HeldTrip& held, RequestKind want);
  void end(Trips::iterator trip, State state);
  static void ended(Request& request);
  void drop(Entries::iterator entry);

  Context::Impl& context_;
  mutable std::mutex mutex_;
  Entries entries_;  // By the address of the first byte; guarded by mutex_, like the next.
  std::uint64_t numbers_ = 0;
  Trips trips_;
};

/// Blocks that the calling thread allocates on GPUs from now on belong to the set of this name, cut
/// to 31 characters; null or "": to no set.
void set_device_tag(const char* tag) noexcept;

}  // namespace tiermem

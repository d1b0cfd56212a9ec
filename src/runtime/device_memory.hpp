// Memory of a GPU by pointer, as cudaMalloc gives it: a block is a buffer at a run of device
// addresses that never change, held there by a view from its allocation to its end. Sets of blocks,
// named by a tag, leave the device while they are paused and come back to where they were.
//
//           pause                mover: all have left, or could not
//   held ──────────▶ leaving ─────────────────────────────────────▶ paused
//    ▲                          mover: all are there                  │
//    └──────────────────────────────────────── coming ◀───────────────┘ resume
//                                                 └──▶ paused: not all could come
//
// Threads: any. One mutex, which the mover's thread takes, too, when a pause or resume has ended:
// nobody waits while holding it.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <mutex>
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
    bool held = false;  ///< Its bytes are there, and stay.
  };
  /// Of all blocks.
  struct Books {
    std::uint64_t blocks = 0, bytes = 0, paused = 0;  ///< `paused`, of `bytes`: not held.
  };

  explicit DeviceMemory(Context::Impl& context) : context_(context) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // See Context::malloc_at, free_ptr, gpu_pause and gpu_resume.
  Result<void*> allocate(Place gpu, std::uint64_t bytes, std::uint64_t align);
  Status free(void* block, const StreamOrder& after = {});
  Result<OpHandle> pause(const char* tag, std::uint64_t bytes, const StreamOrder& after);
  Result<OpHandle> resume(const char* tag, std::uint64_t bytes);

  /// The block that contains the address.
  std::optional<Block> find(const void* inside) const;
  Books books() const;

 private:
  enum class State : std::uint8_t { held, leaving, paused, coming };
  struct Entry {
    Handle buffer = 0;
    std::uint64_t bytes = 0;
    Place place{};
    std::uint64_t number = 0;  // The order of allocation.
    Label::Text tag;
    State state = State::held;
    bool freed = false;  // By the program, on its way: the end of that ends it.
    ViewRecord view{};   // While it is held.
  };
  using Entries = Map<std::uintptr_t, Entry>;
  // The blocks of one pause or resume that is under way.
  struct Trip {
    DeviceMemory* memory = nullptr;
    std::list<Trip, ArenaAllocator<Trip>>::iterator self;
    Vector<Entries::iterator> blocks;
    Vector<ViewRecord> views;  // Of a resume: filled by the mover.
  };
  using Trips = std::list<Trip, ArenaAllocator<Trip>>;

  Status choose(const char* call, const char* tag, std::uint64_t bytes, State from, Trip& trip);
  Status nothing_tagged(const char* call, const char* tag) const;
  class HeldTrip;
  Result<OpHandle> start(const char* call, HeldTrip& held, Want want);
  void end(Trips::iterator trip, State state);
  static void ended(Request& request);
  void drop(Entries::iterator entry);

  Context::Impl& context_;
  mutable std::mutex mutex_;
  Entries entries_;  // By the first byte's address; guarded by mutex_, as the next.
  std::uint64_t numbers_ = 0;
  Trips trips_;
};

/// What the calling thread allocates on GPUs from now on is of the set of this name, of which 31
/// characters are kept; null or "": of none.
void set_device_tag(const char* tag) noexcept;

}  // namespace tiermem

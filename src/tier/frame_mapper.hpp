// How a frame appears in its window and leaves it, one class for each mechanism's calls on one
// extent. Knows addresses and lengths, no pool and no budget.
//
// Threads: hands call in and out, at once for different extents; the fault reader calls poison; any
// thread may forget a range that has no frames. The poisoned set and the list of threads that
// unshare have a mutex each, never held across a system call.
//
// What is true between calls, for an extent of n bytes with home h and window address w:
//   at home:   pages at h, none at w;         in the window: pages at w, none at h;
//   fresh:     pages at neither.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

#include "base/arena.hpp"
#include "os/userfault.hpp"
#include "tier/dram_counters.hpp"
#include "tier/tier.hpp"

namespace tiermem {

struct MapPlace {
  std::byte* home = nullptr;  ///< Null when frames have no memory of their own (in_place).
  std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  bool huge = false;    ///< The pages are huge, as far as known.
  bool forked = false;  ///< In the window since before a fork: pages may be shared with a child.
};

/// Where the pages are afterwards.
enum class MapEnd : std::uint8_t { home, window, dropped };

struct MapResult {
  Status status{};
  MapEnd end = MapEnd::home;
  Mechanism used = Mechanism::in_place;
  bool huge = false;
};

class FrameMapper {
 public:
  /// `map_limit`: mappings this process may have.
  FrameMapper(const Userfault& userfault, std::uint64_t map_limit, LiveDramCounters& counters);

  MapResult in(Mechanism mechanism, const MapPlace& place);
  MapResult out(Mechanism mechanism, const MapPlace& place);
  /// Out by a move, or not at all: `busy`, and the pages are in the window as before. Pages that a
  /// fork shares are made this process's own first; that waits in a fault where the program empties
  /// one meanwhile, which whoever reads faults must fill: unshares().
  MapResult withdraw(const MapPlace& place);
  /// In, and nothing is dropped on the way: asked until it is done.
  MapResult restore(const MapPlace& place);

  /// [any] The thread is making pages its process's own: a page it misses is a hole.
  bool unshares(std::uint32_t thread) const;

  /// The page at `address` raises SIGBUS from now on; its waiters go on. False when a page arrived
  /// meanwhile: they go on to that.
  bool poison(std::byte* address);
  /// Nothing poisoned is remembered of the range. True: something was.
  bool forget(std::byte* address, std::uint64_t bytes);

 private:
  MapResult in_by_move(const MapPlace& place);
  MapResult in_by_copy(const MapPlace& place, std::uint64_t moved, int why);
  MapResult out_by_move(const MapPlace& place);
  MapResult moved_out(const MapPlace& place);
  MapResult in_by_remap(const MapPlace& place);
  MapResult out_by_remap(const MapPlace& place);
  MapResult in_as_is(const MapPlace& place);
  MapResult out_as_is(const MapPlace& place);

  void unshare(std::byte* address, std::uint64_t bytes);
  bool take_poisoned(std::byte* address, std::uint64_t bytes);
  bool room_for_mapping();

  const Userfault& userfault_;
  const std::uint64_t map_limit_;
  LiveDramCounters& counters_;

  std::atomic<std::uint64_t> poisoned_count_{0};  // Written under poison_mutex_, read by hands.
  std::mutex poison_mutex_;
  std::set<std::byte*> poisoned_;  // Guarded by poison_mutex_. Pages.

  std::atomic<unsigned> unsharing_count_{0};  // Written under unsharing_mutex_.
  mutable std::mutex unsharing_mutex_;
  Vector<std::uint32_t> unsharing_;  // Guarded by unsharing_mutex_. Threads, as the kernel counts.

  std::mutex mapping_mutex_;
  std::uint64_t mappings_ = 0;  // Guarded by mapping_mutex_. Never less than there are, about.
};

}  // namespace tiermem

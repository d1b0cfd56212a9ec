// How a frame appears in its window and leaves it: each mechanism's calls on one extent. Knows
// addresses and lengths, no pool and no budget. What copies is in frame_mapper_copy.cpp, what
// does without userfaultfd in frame_mapper_trap.cpp.
//
// Threads: hands call in and out, at once for different extents. The list of threads that unshare
// has a mutex, never held across a system call.
//
// What is true between calls, for an extent of n bytes with home h and window address w:
//   at home:   pages at h, none at w;         in the window: pages at w, none at h;
//   fresh:     pages at neither.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"
#include "tier/dram_counters.hpp"
#include "tier/lent_pages.hpp"
#include "tier/poisoned_pages.hpp"
#include "tier/tier.hpp"

namespace tiermem {

struct MapPlace {
  std::byte* home = nullptr;  ///< Null when frames have no memory of their own (in_place).
  std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  bool huge = false;       ///< The pages are huge, as far as known.
  bool forked = false;     ///< In the window since before a fork: pages may be shared with a child.
  bool cut = false;        ///< The home is a mapping of its own already: MapResult::cuts.
  bool inherited = false;  ///< The window, by children of fork. Homes never are.
  bool mapped = false;     ///< The window is a mapped buffer's.
};

/// Where the pages are afterwards.
enum class MapEnd : std::uint8_t { home, window, dropped };

struct MapResult {
  Status status{};
  MapEnd end = MapEnd::home;
  Mechanism used = Mechanism::in_place;
  bool huge = false;
  unsigned cuts = 0;  ///< Mappings, about, that the home costs since its pages came by mremap.
};

class FrameMapper {
 public:
  /// `map_limit`: mappings this process may have.
  FrameMapper(const Userfault& userfault, std::uint64_t map_limit, PoisonedPages& poisoned,
              const LentPages& lent, LiveDramCounters& counters);

  MapResult in(Mechanism mechanism, const MapPlace& place);
  MapResult out(Mechanism mechanism, const MapPlace& place);
  /// Out with the bytes, or not at all: an error, and the pages are in the window as before. Where
  /// pages move, those that a fork shares are made this process's own first; that waits in a fault
  /// where the program empties one meanwhile, which whoever reads faults must fill: unshares().
  MapResult withdraw(Mechanism mechanism, const MapPlace& place);
  /// In, and nothing is dropped on the way: asked until it is done.
  MapResult restore(Mechanism mechanism, const MapPlace& place);
  /// The same two for windows that are not mapped, where nobody has a view: any error leaves the
  /// pages where they are.
  MapResult take_home(Mechanism mechanism, const MapPlace& place);
  MapResult show(Mechanism mechanism, const MapPlace& place);
  /// A copy of `from` appears at `at`, where nothing is; watched, if so. Asked until it is done.
  void insert(std::byte* at, const std::byte* from, std::uint64_t bytes, bool watched);
  /// The window's pages are no more.
  int drop(std::byte* at, std::uint64_t bytes);

  /// [any] The thread is making pages its process's own: a page it misses is a hole.
  bool unshares(std::uint32_t thread) const;

  /// So many cuts are too many: homes are to be made whole when they are empty.
  bool many_cuts() const;
  /// Homes have so many more, as MapResult told; or fewer, as they are whole again.
  void cut(unsigned more);
  void mended(unsigned cuts);
  /// [child of fork, its only thread] Its homes are whole.
  void follow_fork();

 private:
  MapResult in_by_move(const MapPlace& place);
  MapResult in_by_copy(const MapPlace& place, std::uint64_t moved, int why);
  MapResult out_by_move(const MapPlace& place);
  MapResult moved_out(const MapPlace& place);
  MapResult withdraw_by_move(const MapPlace& place);
  MapResult restore_by_move(const MapPlace& place);
  int take_page(std::byte* home, std::byte* at);
  void leave_out(std::byte* at, const std::byte* from, int error);
  MapResult restore_by_copy(const MapPlace& place);
  MapResult withdraw_by_remap(const MapPlace& place);
  MapResult withdraw_trapped(const MapPlace& place);
  MapResult restore_trapped(const MapPlace& place);
  MapResult drop_trapped(const MapPlace& place);
  MapResult out_by_copy(const MapPlace& place);
  void copy_in(std::byte* at, const std::byte* from, std::uint64_t bytes, bool watched);
  int remap_home(const MapPlace& place, std::uint64_t step, std::uint64_t& done);
  MapResult home_by_remap(const MapPlace& place);
  MapResult close_window(const MapPlace& place, MapEnd end);
  MapResult in_by_remap(const MapPlace& place);
  MapResult out_by_remap(const MapPlace& place);
  MapResult in_as_is(const MapPlace& place);
  MapResult out_as_is(const MapPlace& place);

  int empty(std::byte* at, std::uint64_t bytes) const;
  MapResult give_up(const MapPlace& place, Mechanism used, const char* why);
  MapResult stays_beside_lent(MapEnd end);

  void unshare(std::byte* address, std::uint64_t bytes);
  bool room_for_mapping();

  const Userfault& userfault_;
  const std::uint64_t map_limit_;
  PoisonedPages& poisoned_;
  const LentPages& lent_;
  LiveDramCounters& counters_;

  std::atomic<std::uint64_t> cuts_{0};

  std::mutex slot_mutex_;    // Held while one page goes by the slot.
  host::AddressRange slot_;  // A page of ours. Guarded by slot_mutex_.

  std::atomic<unsigned> unsharing_count_{0};  // Written under unsharing_mutex_.
  mutable std::mutex unsharing_mutex_;
  Vector<std::uint32_t> unsharing_;  // Guarded by unsharing_mutex_. Threads, as the kernel counts.

  std::mutex mapping_mutex_;
  std::uint64_t mappings_ = 0;  // Guarded by mapping_mutex_. Never less than there are, about.
};

}  // namespace tiermem

// How a frame enters its window and leaves it: the calls of each mechanism for one extent. This
// class knows addresses and lengths, but no pool and no budget. The copying mechanism is in
// frame_mapper_copy.cpp, the one without userfaultfd in frame_mapper_trap.cpp, and the one for
// pages in a file in frame_mapper_file.cpp.
//
// Threads: workers move frames in and out, at once for different extents. The list of threads that
// unshare has a mutex, never held across a system call.
//
// Between calls, for an extent of n bytes with home h and window address w, one of these holds:
//   at home:   pages at h, none at w;         in the window: pages at w, none at h;
//   fresh:     pages at neither.
// Pages in a file are at h in the first two cases, and in the window at w, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"
#include "tier/frame.hpp"
#include "tier/host_counters.hpp"
#include "tier/lent_pages.hpp"
#include "tier/poisoned_pages.hpp"

namespace tiermem {

class DaxPages;
class WindowArena;

struct MapPlace {
  std::byte* home = nullptr;  ///< Null if frames have no memory of their own (in_place).
  std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  bool huge = false;       ///< The pages are huge, as far as known.
  bool forked = false;     ///< In the window since before a fork: pages may be shared with a child.
  bool cut = false;        ///< The home is a separate mapping already: MapResult::cuts.
  bool inherited = false;  ///< Children of fork inherit the window. They never inherit homes.
  bool mapped = false;     ///< The window belongs to a mapped buffer.
  bool watched = false;    ///< Copied pages are watched as soon as they are in the window.
  /// The pages are in a file: the window gets a second mapping of them, and the home keeps its own.
  const DaxPages* file = nullptr;
  const WindowArena* arena = nullptr;  ///< With `file`: the arena of the window.
};

/// The place of the pages after the call.
enum class MapEnd : std::uint8_t { home, window, dropped };

struct MapResult {
  Status status{};
  MapEnd end = MapEnd::home;
  Mechanism used = Mechanism::in_place;
  bool huge = false;
  /// Approximate number of mappings that the home costs since its pages came by mremap.
  unsigned cuts = 0;
};

class FrameMapper {
 public:
  /// The mappings that a frame in its window costs, where it has a mapping of its own. It splits
  /// its window's mapping in three, and its home's mapping too. Both are whole again after it has
  /// left. The number is approximate, because neighbours merge.
  static constexpr std::uint64_t kMappingsEach = 4;

  /// `map_limit`: max number of mappings of this process.
  FrameMapper(const Userfault& userfault, std::uint64_t map_limit, PoisonedPages& poisoned,
              const LentPages& lent, LiveHostCounters& counters);

  MapResult in(Mechanism mechanism, const MapPlace& place);
  MapResult out(Mechanism mechanism, const MapPlace& place);
  /// Moves the pages out of the window with their bytes, or leaves them in the window with an
  /// error. Mechanisms that move pages first make pages private that a fork shares. This step waits
  /// in a fault if the program empties a page during the call; the fault reader must fill it:
  /// unshares().
  MapResult withdraw(Mechanism mechanism, const MapPlace& place);
  /// Moves the pages into the window and drops nothing on the way. Repeats until it succeeds.
  MapResult restore(Mechanism mechanism, const MapPlace& place);
  /// The same two operations for windows that are not mapped, while no view exists: any error
  /// leaves the pages where they are.
  MapResult take_home(Mechanism mechanism, const MapPlace& place);
  MapResult show(Mechanism mechanism, const MapPlace& place);
  /// Inserts a copy of `from` at `at`, where nothing is mapped, and watches it if `watched`.
  /// Repeats until it succeeds.
  void insert(std::byte* at, const std::byte* from, std::uint64_t bytes, bool watched);
  /// Drops the pages in the window.
  int drop(std::byte* at, std::uint64_t bytes);

  /// [any] Returns whether the thread is making pages private: a page that it misses is a hole.
  bool unshares(std::uint32_t thread) const;

  /// Returns whether there are too many cuts, so that empty homes must be made whole.
  bool many_cuts() const;
  /// cut() adds cuts of homes, as MapResult reports them; mended() subtracts those of homes that
  /// are whole again.
  void cut(unsigned more);
  void mended(unsigned cuts);
  /// [child of fork, its only thread] The child's homes are whole.
  void follow_fork();

 private:
  /// MapResult::cuts of a home that becomes a separate mapping, and splits its neighbours' mapping
  /// in two.
  static constexpr unsigned kHomeCuts = 2;

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
  MapResult in_by_sharing(const MapPlace& place);
  MapResult out_by_sharing(const MapPlace& place);
  MapResult in_as_is(const MapPlace& place);
  MapResult out_as_is(const MapPlace& place);

  int empty(std::byte* at, std::uint64_t bytes) const;
  MapResult give_up(const MapPlace& place, Mechanism used, const char* why);
  MapResult stays_beside_lent(MapEnd end);

  void unshare(std::byte* address, std::uint64_t bytes);
  bool room_for_mapping();
  void forget_mapping();
  MapResult too_many_mappings();

  const Userfault& userfault_;
  const std::uint64_t map_limit_;
  PoisonedPages& poisoned_;
  const LentPages& lent_;
  LiveHostCounters& counters_;

  std::atomic<std::uint64_t> cuts_{0};

  std::mutex slot_mutex_;    // Held while one page passes through the slot.
  host::AddressRange slot_;  // One page of our own. Guarded by slot_mutex_.

  std::atomic<unsigned> unsharing_count_{0};  // Written under unsharing_mutex_.
  mutable std::mutex unsharing_mutex_;
  Vector<std::uint32_t> unsharing_;  // Kernel thread ids. Guarded by unsharing_mutex_.

  std::mutex mapping_mutex_;
  // Guarded by mapping_mutex_. An estimate that is rarely below the real number.
  std::uint64_t mappings_ = 0;
};

}  // namespace tiermem

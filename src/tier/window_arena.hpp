// Address space for windows: large ranges, reserved and registered once each. Aligned windows are
// cut from them and returned to them. However many windows exist, the kernel sees few mappings for
// each range. The arena has no pages of its own and maps no frame.
//
// Addresses outside every window are closed: they are inaccessible, not charged as writable memory,
// and not in core dumps. Windows are open. A closed hole is a mapping of its own. A small hole
// between windows therefore stays open until open holes add up to more than the live windows, and
// to more than 64 MiB.
//
// Threads: any thread may call reserve, release and size_of. One mutex is held for a few map
// operations, and across the system calls that create a range or open or close addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/touch_trap.hpp"
#include "os/userfault.hpp"
#include "tier/lent_pages.hpp"

namespace tiermem {

struct WindowArenaOptions {
  /// Size of each range; halved if the kernel refuses it.
  std::uint64_t reserve_bytes = std::uint64_t{1} << 40;
  /// Min size of a range, unless RLIMIT_AS is set.
  std::uint64_t least_bytes = std::uint64_t{1} << 30;
  bool huge = true;                            ///< Huge pages are requested, else disabled.
  bool accessible = true;                      ///< False: absent extents are PROT_NONE.
  bool inherited = true;                       ///< Children of fork inherit it.
  const Userfault* registered_with = nullptr;  ///< Outlives the arena.
  bool watch = false;                          ///< Also register for watched pages.
  TouchTrap* trap = nullptr;                   ///< Outlives the arena. Detects its touches.
  std::uint64_t map_limit = 0;  ///< Max number of mappings of the process; 0: vm.max_map_count.
};

class WindowArena {
 public:
  explicit WindowArena(const WindowArenaOptions& options);

  /// Places the later ranges of all arenas in these addresses, or refuses them. Call before the
  /// first arena exists.
  static void place_between(std::uint64_t begin, std::uint64_t bytes);

  /// Reserves a window. `alignment`: a power of two, at least a page. `bytes` is rounded up to
  /// whole alignments.
  Result<std::byte*> reserve(std::uint64_t bytes, std::uint64_t alignment);
  /// Returns the size of a window, or 0 if `window` is not the start of a window of this arena.
  std::uint64_t size_of(const std::byte* window) const;
  /// Releases a window. Its addresses may be reused at once: nothing may be mapped in it, except
  /// where it is lent. Lent addresses are not reused.
  void release(std::byte* window, const LentPages& lent = {});
  /// For a window that cannot be emptied: its addresses are never reused.
  void retire(std::byte* window);

  /// [child of fork, its only thread] The child inherits the ranges but not their registration.
  /// Registers them again, or closes them, so that a touch raises SIGSEGV and never shows wrong
  /// bytes. Leaves lent ranges unchanged.
  [[nodiscard]] int follow_fork(const LentPages& lent);
  void close(const LentPages& lent);
  /// [child of fork, its only thread] For an arena that the child does not inherit: begins without
  /// ranges. The addresses of the parent's ranges are never used again, and a touch there raises
  /// SIGSEGV.
  void leave_to_parent();
  /// [child of fork, its only thread] Calls visit(window, bytes) for each window.
  template <typename Visit>
  void each_window(Visit&& visit) const {
    for (const auto& [address, bytes] : windows_) {
      visit(reinterpret_cast<std::byte*>(address), bytes);
    }
  }

  /// Replaces any mapping in a page or more of a range by absent memory like the rest of the range.
  /// Returns 0 or errno; after an error its touch raises SIGSEGV.
  [[nodiscard]] int renew(std::byte* address, std::uint64_t bytes) const;

  /// Returns how many of the bytes from `address` on are of the same kind: in the arena's ranges,
  /// or not.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes, bool& own) const;
  /// For a touched address in no window: makes a touch raise SIGSEGV, as if nothing were mapped
  /// there. Returns false if the address is in a window, is not the arena's, or the kernel refuses.
  bool close_at(const std::byte* address);
  /// The program maps memory of its own over addresses of no buffer: no window will use them again.
  /// Returns false while the window of a freed buffer is still there; call again.
  bool give_away(std::byte* address, std::uint64_t bytes);
  /// The program changes how pages of the window at `address` are mapped: protection, locks,
  /// advice. renew() must make them uniform before the addresses are reused.
  void alter(const std::byte* address);
  bool altered(const std::byte* address) const;
  bool contains(const std::byte* address) const;
  const WindowArenaOptions& options() const { return options_; }

  /// Bytes of address space held, and the part of it in windows.
  std::uint64_t reserved_bytes() const;
  std::uint64_t window_bytes() const;
  /// Open bytes outside every window.
  std::uint64_t idle_bytes() const;

 private:
  struct Fit {
    std::uint64_t address = 0;  // 0: there is none.
    std::uint64_t hole = 0;     // The hole that contains it.
  };

  struct Hole {
    std::uint64_t begin = 0, end = 0;
  };

  Status extend(std::uint64_t bytes);
  Hole merge_hole(Hole hole);
  Status dress(std::byte* address, std::uint64_t bytes) const;
  std::uint64_t window_at(const std::byte* address) const;
  Status open(std::uint64_t address, std::uint64_t bytes, std::uint64_t hole_end);
  void close_around(std::uint64_t address, std::uint64_t bytes, const Hole& hole);
  void close_all();
  Hole open_gap(std::uint64_t begin, std::uint64_t end, const Hole& hole) const;
  void close(const Hole& gap, const Hole& hole);
  enum class Shut : std::uint8_t { open, closed, unusable };
  Shut shut(std::uint64_t address, std::uint64_t bytes) const;
  void add_closed(std::uint64_t address, std::uint64_t bytes);
  void give_back(std::uint64_t address, std::uint64_t bytes);
  Fit find(std::uint64_t bytes, std::uint64_t alignment) const;
  void add_hole(std::uint64_t address, std::uint64_t bytes);
  void remove_hole(std::uint64_t address);

  const WindowArenaOptions options_;
  const std::size_t most_closed_;

  mutable std::mutex mutex_;
  // mutex_ guards the members below. Holes within a range never touch each other: neighbours merge.
  Vector<host::AddressRange> ranges_;
  Map<std::uint64_t, std::uint64_t> holes_;  // Address to bytes.
  Set<std::uint64_t> altered_;               // Windows, by their start addresses.
  Set<std::pair<std::uint64_t, std::uint64_t>> holes_by_size_;
  Map<std::uint64_t, std::uint64_t> windows_;  // Address to bytes.
  std::uint64_t window_bytes_ = 0;
  // Closed parts of holes. Stays empty for an arena that closes absent extents anyway.
  Map<std::uint64_t, std::uint64_t> closed_;  // Address to bytes. Neighbours merge.
  bool counts_commit_ = false;                // The kernel counts the commit of the newest range.
  std::uint64_t idle_bytes_ = 0;              // Bytes of holes that are not in closed_.
  std::uint64_t swept_ = 0;                   // The part that remained when all were closed last.
};

}  // namespace tiermem

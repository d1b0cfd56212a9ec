// Address space for windows: large ranges, reserved and registered once each, from which aligned
// windows are cut and into which they return. However many windows there are, the kernel sees few
// mappings for each range. Has no pages of its own and maps no frame.
//
// Addresses in no window are closed: no access, no charge for memory that may be written, and not
// in core dumps. Windows are open. Closing a hole makes a mapping of its own, so a small hole
// between windows stays open until open holes add up to more than the live windows, and 64 MiB.
//
// Threads: reserve, release and size_of are for any; one mutex, held for a few map operations, and
// across the system calls that make a new range, open addresses or close them.
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
  std::uint64_t reserve_bytes = std::uint64_t{1} << 40;  ///< For each range; halved when refused.
  std::uint64_t least_bytes = std::uint64_t{1} << 30;  ///< Not below this, unless RLIMIT_AS is set.
  bool huge = true;                                    ///< Huge pages asked for; else refused.
  bool accessible = true;                              ///< False: absent extents are PROT_NONE.
  bool inherited = true;                               ///< By children of fork.
  const Userfault* registered_with = nullptr;          ///< Outlives the arena.
  bool watch = false;                                  ///< Registered for watched pages, too.
  TouchTrap* trap = nullptr;                           ///< Outlives the arena. Sees its touches.
  std::uint64_t map_limit = 0;  ///< Mappings the process may have; 0: as vm.max_map_count says.
};

class WindowArena {
 public:
  explicit WindowArena(const WindowArenaOptions& options);

  /// Ranges of all arenas from now on lie in these addresses, or are refused. Before the first.
  static void place_between(std::uint64_t begin, std::uint64_t bytes);

  /// `alignment`: a power of two, at least a page. `bytes` is rounded up to whole alignments.
  Result<std::byte*> reserve(std::uint64_t bytes, std::uint64_t alignment);
  /// 0 when `window` is not the start of a window of this arena.
  std::uint64_t size_of(const std::byte* window) const;
  /// The address range may be given out again at once: nothing may be mapped in it, but where it is
  /// lent. Lent addresses are not given out again.
  void release(std::byte* window, const LentPages& lent = {});
  /// For a window that cannot be emptied: its addresses are never given out again.
  void retire(std::byte* window);

  /// [child of fork, its only thread] The ranges were inherited, their registration was not: they
  /// are registered again, or closed, so that a touch is SIGSEGV and never shows wrong bytes. What
  /// is lent is left alone.
  [[nodiscard]] int follow_fork(const LentPages& lent);
  void close(const LentPages& lent);

  /// Absent memory as in the rest of the range takes the place of whatever is mapped at a page or
  /// more of it. 0 or errno; then its touch is SIGSEGV.
  [[nodiscard]] int renew(std::byte* address, std::uint64_t bytes) const;

  /// How many of the bytes from `address` on are alike: in the arena's ranges, or not.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes, bool& own) const;
  /// The address is in no window, and was touched: from now on that is SIGSEGV, as where nothing is
  /// mapped. False: it is in a window, or not the arena's, or the kernel refuses.
  bool close_at(const std::byte* address);
  /// The program maps something of its own over addresses of no buffer: they never are a window's
  /// again. False: a window is still there, of a buffer that was freed; ask again.
  bool give_away(std::byte* address, std::uint64_t bytes);
  /// The program changes how pages of the window at `address` are mapped: their protection, locks,
  /// advice. Before the addresses are given out again, renew() must have made them alike.
  void alter(const std::byte* address);
  bool altered(const std::byte* address) const;
  bool contains(const std::byte* address) const;
  const WindowArenaOptions& options() const { return options_; }

  /// Bytes of address space held, and of that in windows.
  std::uint64_t reserved_bytes() const;
  std::uint64_t window_bytes() const;
  /// Bytes that are in no window and open.
  std::uint64_t idle_bytes() const;

 private:
  struct Fit {
    std::uint64_t address = 0;  // 0: none.
    std::uint64_t hole = 0;     // The hole it lies in.
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
  // The rest is guarded by mutex_. Holes never touch each other within a range: neighbours merge.
  Vector<host::AddressRange> ranges_;
  Map<std::uint64_t, std::uint64_t> holes_;  // Address to bytes.
  Set<std::uint64_t> altered_;               // Windows, by their beginnings.
  Set<std::pair<std::uint64_t, std::uint64_t>> holes_by_size_;
  Map<std::uint64_t, std::uint64_t> windows_;  // Address to bytes.
  std::uint64_t window_bytes_ = 0;
  // Parts of holes. Of an arena whose absent extents are closed anyway it stays empty.
  Map<std::uint64_t, std::uint64_t> closed_;  // Address to bytes. Neighbours merge.
  bool counts_commit_ = false;                // The kernel does, of the newest range.
  std::uint64_t idle_bytes_ = 0;              // Of holes, what is not in closed_.
  std::uint64_t swept_ = 0;                   // Of these, what was left when all were closed.
};

}  // namespace tiermem

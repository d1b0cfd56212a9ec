// The table of regions, and the functions that the region*.cpp files share. Only those files
// include this.
//
// Threads: functions that take an Entry need the table's lock, shared if they only read.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <shared_mutex>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/no_signals.hpp"
#include "base/writer_first_mutex.hpp"
#include "preload/page_states.hpp"
#include "preload/region.hpp"
#include "preload/tiering.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem::preload::regions {

constexpr std::size_t kPage = 4096;

struct Entry : Region {
  std::size_t extent = 0;  // Bytes of an extent.
  PageStates pages;
  std::size_t live = 0;  // Bytes that the program has mapped.
  // Views of the extents that must stay, by the extent's number.
  Map<std::uint64_t, ViewRecord> pins;
  std::atomic<bool> altered{false};  // See alter().
  std::uint64_t counted = 0;         // Its contribution to tiered_bytes().
  bool pool = false;                 // create_pool() made it.
};

struct Table {
  WriterFirstMutex mutex;
  Map<std::byte*, Entry> entries;  // Guarded by mutex.
};

Table& table();
bool have_table();
/// How many exclusive locks of the table this thread holds: a signal handler on it must not wait.
extern thread_local constinit unsigned t_writing;
/// Adds to tiered_bytes().
void count_tiered(std::uint64_t change);

/// The table, locked for this thread alone. The program's handlers do not run before its end: they
/// may touch memory, or change mappings.
class Writing {
 public:
  Writing() {
    ++t_writing;
    table().mutex.lock();
  }
  ~Writing() {
    table().mutex.unlock();
    --t_writing;
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  const NoSignals quiet_;
};

/// The table, locked for threads that read it. The program's handlers do not run before its end.
class Reading {
 public:
  Reading() : lock_(table().mutex) {}

 private:
  const NoSignals quiet_;
  const std::shared_lock<WriterFirstMutex> lock_;
};

inline std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// Call it with the mutex held. Returns the entry that contains `address`, or the first one above
// it.
inline Map<std::byte*, Entry>::iterator at_or_after(std::byte* address) {
  auto& entries = table().entries;
  auto at = entries.upper_bound(address);
  if (at != entries.begin()) {
    const auto before = std::prev(at);
    if (address < before->second.begin + before->second.capacity) {
      return before;
    }
  }
  return at;
}

// For addresses that are reserved for windows but are in no region: the program has nothing mapped
// there.
inline int no_memory(Part) {
  errno = ENOMEM;
  return -1;
}

inline int pass_over(Part) {
  return 0;
}

inline int nothing(std::byte*, std::size_t, int) {
  return 0;
}

/// Calls `tier(entry, part)` for parts in regions, `hole(part)` for addresses reserved for other
/// windows, and `rest` for all others. The first error ends it.
template <typename Other, typename Hole, typename Tier>
int for_parts(Part range, int argument, Other&& rest, Hole&& hole, Tier&& tier) {
  const ArenaScope inside;
  std::byte* at = range.begin;
  while (at < range.end()) {
    const auto found = at_or_after(at);
    std::byte* const next =
        found == table().entries.end() ? range.end() : std::min(found->first, range.end());
    if (at < next) {
      bool own = false;
      const std::size_t bytes =
          context()->impl().stretch(at, static_cast<std::size_t>(next - at), own);
      if ((own ? hole(Part{at, bytes}) : rest(at, bytes, argument)) != 0) {
        return -1;
      }
      at += bytes;
      continue;
    }
    Entry& entry = found->second;
    std::byte* const end = std::min(range.end(), entry.begin + entry.capacity);
    if (tier(entry, Part{at, static_cast<std::size_t>(end - at)}) != 0) {
      return -1;
    }
    at = end;
  }
  return 0;
}

// Allocating the table's own records may fail, too.
template <typename Call>
auto guarded(Call&& call, decltype(call()) refused) -> decltype(call()) {
  try {
    const ArenaScope inside;
    const Writing lock;
    return call();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return refused;
  }
}

inline Part whole_pages_of(Part part) {
  const std::size_t head = number(part.begin) % kPage;
  return {part.begin - head, round_up(head + part.length, kPage)};
}

inline Access access_of(const Entry& entry, Part part, std::uint32_t mode) {
  return {
      entry.buffer, static_cast<std::uint64_t>(part.begin - entry.begin), part.length, mode, {}, 0};
}

inline std::uint64_t extent_at(const Entry& entry, const std::byte* page) {
  return static_cast<std::uint64_t>(page - entry.begin) / entry.extent;
}

inline Part extents_part(const Entry& entry, std::uint64_t first, std::uint64_t last) {
  return {entry.begin + first * entry.extent, (last - first + 1) * entry.extent};
}

// The part, extended to whole extents.
inline Part outer_extents(const Entry& entry, Part part) {
  return extents_part(entry, extent_at(entry, part.begin), extent_at(entry, part.end() - 1));
}

inline bool is_tiered(const PageState& state) {
  return state.kind == PageState::Kind::tiered;
}
inline bool is_foreign(const PageState& state) {
  return state.kind == PageState::Kind::foreign;
}
inline bool is_unmapped(const PageState& state) {
  return state.kind == PageState::Kind::unmapped;
}

constexpr PageState kUnmapped{.kind = PageState::Kind::unmapped, .protection = PROT_NONE};

// ---- region_pins.cpp

/// Applies the change of the part's states. Afterwards an extent has a view exactly if one of its
/// pages must not move. On false with errno there was no room for an extent that must stay, and
/// nothing has changed.
bool apply_settled(Entry& entry, Part part, PageStates::Change& change);
/// Undoes what apply_settled() did. Keeps errno.
void undo_settled(Entry& entry, Part part, PageStates::Change& change);
/// Releases the views of extents between the two that need not stay. Only after changes that make
/// no further extent stay.
void release_pins(Entry& entry, std::uint64_t first, std::uint64_t last);
/// Fills the holes of extents with a view with zeros: a system call on a hole could fail if the
/// kernel's faults are not served. In other extents the mover would not know of these pages.
void fill_pinned(const Entry& entry, Part part);
/// A child of fork does not inherit memory locks.
void forget_locks();

// ---- region_calls.cpp

/// Marks that the mapping of some pages differs from the tier's. The tier repairs it when the
/// region ends.
void alter(Entry& entry);
/// The tiered runs of the part, each as long as possible.
Vector<Part> tiered_in(const Entry& entry, Part part);
/// Discards a part without foreign pages: it reads as zeros, and the tier keeps none of its bytes.
void discard_own(Entry& entry, Part part);
/// Makes foreign pages of the part tiermem's again, and absent. Returns 0, or -1 with errno.
int take_back(Entry& entry, Part part);

// ---- region.cpp

/// Ends the region.
void end_entry(Map<std::byte*, Entry>::iterator at);

}  // namespace tiermem::preload::regions

// The table of regions, and the functions that the files region*.cpp share. Only they include this.
//
// Threads: what takes an Entry is called with the table's lock, shared for what only looks.
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
#include "preload/page_states.hpp"
#include "preload/region.hpp"
#include "preload/tiering.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem::preload::regions {

constexpr std::size_t kPage = 4096;

struct Entry : Region {
  std::size_t extent = 0;  // Bytes of one.
  PageStates pages;
  std::size_t live = 0;                 // Bytes that the program has mapped.
  Map<std::uint64_t, ViewRecord> pins;  // By the extent's number: those that must stay.
  std::atomic<bool> altered{false};     // See alter().
  std::uint64_t counted = 0;            // Its part of tiered_bytes().
  bool pool = false;                    // create_pool() made it.
};

struct Table {
  std::shared_mutex mutex;
  Map<std::byte*, Entry> entries;  // Guarded by mutex.
};

Table& table();
bool have_table();
/// How often this thread has the table for itself: a handler that interrupts it must not wait.
extern thread_local constinit unsigned t_writing;
/// A change of tiered_bytes().
void count_tiered(std::uint64_t change);

/// The table, for this thread alone.
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
};

inline std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// With the mutex. The entry that contains `address`, or the first one above it.
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

// Addresses that are reserved for windows and are in no region: the program has nothing there.
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

/// Calls `tier(entry, part)` for what lies in regions, `hole(part)` for what is reserved for other
/// windows, and `rest` for what lies between; the first error ends it.
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

// Memory for the table's own records may be refused, too.
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
  return {part.begin - head, (head + part.length + kPage - 1) / kPage * kPage};
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

// The part, and the rest of its first and last extent.
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

/// Applies the change of the part's states. Extents of which a page may not move have a view each
/// then, and others lose theirs. False with errno: there is no room for one that must stay, and
/// nothing has changed.
bool apply_settled(Entry& entry, Part part, PageStates::Change& change);
/// Undoes what apply_settled() did. Keeps errno.
void undo_settled(Entry& entry, Part part, PageStates::Change& change);
/// Extents between the two that need not stay lose their views. For changes after which none more
/// must stay.
void release_pins(Entry& entry, std::uint64_t first, std::uint64_t last);
/// Holes of extents with a view become zeros: a system call on one could fail where the kernel's
/// faults are not served. In others the mover would not know of the pages.
void fill_pinned(const Entry& entry, Part part);
/// A child of fork has none of its parent's locks.
void forget_locks();

// ---- region_calls.cpp

/// The mapping of some pages is no longer what the tier made it: it mends that when the region
/// ends.
void alter(Entry& entry);
/// The tiered stretches of the part, each as long as can be.
Vector<Part> tiered_in(const Entry& entry, Part part);
/// No page of the part is foreign. It reads as zeros from now on, and the tier has nothing of it.
void discard_own(Entry& entry, Part part);
/// Foreign pages of the part are tiermem's again, and absent. 0, or -1 with errno.
int take_back(Entry& entry, Part part);

// ---- region.cpp

/// The region is no more.
void end_entry(Map<std::byte*, Entry>::iterator at);

}  // namespace tiermem::preload::regions

// The table of regions, by address.
#include "preload/region.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <shared_mutex>
#include <utility>

#include "base/arena.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/page_states.hpp"
#include "preload/tiering.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
// Bringing in what is to stay may have to wait for others to be written.
constexpr Timeout kPatience = Timeout::seconds(60);

struct Entry : Region {
  std::size_t extent = 0;              // Bytes of one.
  PageStates pages;
  std::size_t live = 0;                // Bytes that the program has mapped.
  Map<std::uint64_t, ViewRecord> pins;  // By the extent's number: those that must stay.
  std::atomic<bool> altered{false};     // See alter().
  std::uint64_t counted = 0;            // Its part of tiered_bytes().
};

struct Table {
  std::shared_mutex mutex;
  Map<std::byte*, Entry> entries;  // Guarded by mutex.
};
// Never destroyed: memory is freed after the last exit handler, too.
alignas(Table) constinit std::byte g_table_room[sizeof(Table)]{};
constinit std::atomic<bool> g_table_made{false};

// All regions so far lie between these; they only grow apart. Relaxed: who does not see a region
// that is being made cannot name its addresses.
constinit std::atomic<std::uintptr_t> g_lowest{~std::uintptr_t{0}}, g_highest{0};

constinit std::atomic<std::uint64_t> g_tiered{0};  // Statistics.

Table& table() {
  return *std::launder(reinterpret_cast<Table*>(g_table_room));
}

// How often this thread has the table for itself: a handler that interrupts it must not wait.
thread_local constinit unsigned t_writing = 0;

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

void make_table() {
  static const bool made = [] {
    new (g_table_room) Table;
    g_table_made.store(true, std::memory_order_release);
    return true;
  }();
  (void)made;
}

bool have_table() {
  return g_table_made.load(std::memory_order_acquire);
}

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// With the mutex. The entry that contains `address`, or the first one above it.
Map<std::byte*, Entry>::iterator at_or_after(std::byte* address) {
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
int no_memory(Part) {
  errno = ENOMEM;
  return -1;
}
int pass_over(Part) {
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

Access access_of(const Entry& entry, Part part, std::uint32_t mode) {
  return {
      entry.buffer, static_cast<std::uint64_t>(part.begin - entry.begin), part.length, mode, {}, 0};
}

std::uint64_t extent_at(const Entry& entry, const std::byte* page) {
  return static_cast<std::uint64_t>(page - entry.begin) / entry.extent;
}

Part extents_part(const Entry& entry, std::uint64_t first, std::uint64_t last) {
  return {entry.begin + first * entry.extent, (last - first + 1) * entry.extent};
}

bool is_tiered(const PageState& state) {
  return state.kind == PageState::Kind::tiered;
}
bool is_foreign(const PageState& state) {
  return state.kind == PageState::Kind::foreign;
}
bool is_unmapped(const PageState& state) {
  return state.kind == PageState::Kind::unmapped;
}

constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // Linux 5.14. Unlike others, end at a hole.

constexpr PageState kUnmapped{.kind = PageState::Kind::unmapped, .protection = PROT_NONE};

// A page of the extent may not move, and another is tiermem's. Once an extent is pinned for a
// foreign page it stays so until that is gone: the tier has bytes of it, and would empty all of it.
bool must_stay(const Entry& entry, std::uint64_t extent) {
  const Part part = extents_part(entry, extent, extent);
  return entry.pages.any(part, [](const PageState& state) { return state.pinned(); }) &&
         (entry.pages.any(part, is_tiered) || entry.pins.contains(extent));
}

// The part, and the rest of its first and last extent.
Part outer_extents(const Entry& entry, Part part) {
  return extents_part(entry, extent_at(entry, part.begin), extent_at(entry, part.end() - 1));
}

// Extents between the two that must stay and have no view.
Vector<std::uint64_t> unpinned_between(const Entry& entry, std::uint64_t first,
                                       std::uint64_t last) {
  Vector<std::uint64_t> found;
  const auto add = [&](std::uint64_t extent) {
    if ((found.empty() || found.back() < extent) && !entry.pins.contains(extent) &&
        must_stay(entry, extent)) {
      found.push_back(extent);
    }
  };
  entry.pages.for_runs(extents_part(entry, first, last), [&](Part run, const PageState& state) {
    if (!state.pinned()) {
      return true;
    }
    const std::uint64_t end = extent_at(entry, run.end() - 1);
    if (is_foreign(state)) {  // Those between the two ends are foreign as a whole.
      add(extent_at(entry, run.begin));
      add(end);
    } else {
      for (std::uint64_t extent = extent_at(entry, run.begin); extent <= end; ++extent) {
        add(extent);
      }
    }
    return true;
  });
  return found;
}

void release_pins(Entry& entry, std::uint64_t first, std::uint64_t last) {
  for (auto pin = entry.pins.lower_bound(first);
       pin != entry.pins.end() && pin->first <= last;) {
    if (must_stay(entry, pin->first)) {
      ++pin;
    } else {
      (void)context()->release({&pin->second, 1});
      pin = entry.pins.erase(pin);
    }
  }
}

// Each extent that the part overlaps has a view exactly if it must stay. False with errno: there is
// no room for one that must stay, and no view was added.
bool settle(Entry& entry, Part part) {
  if (part.length == 0 || (entry.pages.plain() && entry.pins.empty())) {
    return true;
  }
  const std::uint64_t first = extent_at(entry, part.begin);
  const std::uint64_t last = extent_at(entry, part.end() - 1);
  const Vector<std::uint64_t> wanted = unpinned_between(entry, first, last);
  constexpr std::size_t kAtOnce = 256;
  Map<std::uint64_t, ViewRecord> made;
  for (const std::uint64_t extent : wanted) {
    made.emplace(extent, ViewRecord{});
  }
  Vector<Access> list;
  Vector<ViewRecord> views;
  list.reserve(std::min(wanted.size(), kAtOnce));
  views.reserve(wanted.size());  // Nothing is thrown while a view is held.
  for (std::size_t done = 0; done < wanted.size(); done += list.size()) {
    list.clear();
    for (std::size_t i = done; i < std::min(wanted.size(), done + kAtOnce); ++i) {
      list.push_back(access_of(entry, extents_part(entry, wanted[i], wanted[i]), kWrite));
    }
    views.resize(done + list.size());
    const Status status =
        context()->acquire(list, kPatience, {views.data() + done, list.size()});
    if (!status.ok()) {
      log_warn("{} bytes at {} cannot be kept resident: {}", part.length,
               static_cast<void*>(part.begin), status.message());
      if (done != 0) {
        (void)context()->release({views.data(), done});
      }
      errno = ENOMEM;
      return false;
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    made.find(wanted[i])->second = views[i];
  }
  entry.pins.merge(made);
  release_pins(entry, first, last);
  return true;
}

// The mapping of some pages is no longer what the tier made it: it mends that when the region ends.
void alter(Entry& entry) {
  if (!entry.altered.exchange(true)) {
    context()->impl().alter_window(entry.begin);
  }
}

Part whole_pages_of(Part part) {
  const std::size_t head = number(part.begin) % kPage;
  return {part.begin - head, (head + part.length + kPage - 1) / kPage * kPage};
}

// Of an extent with a view, which the mover does not touch. No hole stays: a system call on it
// could fail where the kernel's faults are not served.
void empty_in_place(Part part) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18.
  if (tiermem_plain_madvise(part.begin, part.length, MADV_DONTNEED) != 0 &&
      tiermem_plain_madvise(part.begin, part.length, kDontNeedLocked) != 0) {
    log_error("{} bytes at {} could not be emptied: {}", part.length,
              static_cast<void*>(part.begin), std::strerror(errno));
    return;
  }
  context()->impl().fill_window(part.begin, part.length);
}

// All of the part is tiered, by `pins` as they are.
void discard_tiered(Entry& entry, Part part) {
  std::byte* at = part.begin;
  const auto by_mover = [&](std::byte* end) {
    if (at >= end) {
      return;
    }
    const Access access = access_of(entry, {at, static_cast<std::size_t>(end - at)}, kDiscard);
    if (const Status status = context()->advise({&access, 1}, Advice::dont_need); !status.ok()) {
      log_error("{} bytes at {} could not be emptied: {}", access.length,
                static_cast<void*>(at), status.message());
    }
  };
  for (auto pin = entry.pins.lower_bound(extent_at(entry, part.begin)); pin != entry.pins.end();
       ++pin) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin >= part.end()) {
      break;
    }
    by_mover(extent.begin);
    std::byte* const begin = std::max(at, extent.begin);
    std::byte* const end = std::min(extent.end(), part.end());
    empty_in_place({begin, static_cast<std::size_t>(end - begin)});
    at = end;
  }
  by_mover(part.end());
}

// What is tiered of the part, in stretches as long as can be.
Vector<Part> tiered_in(const Entry& entry, Part part) {
  Vector<Part> found;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    if (!is_tiered(state)) {
      return true;
    }
    if (!found.empty() && found.back().end() == run.begin) {
      found.back().length += run.length;
    } else {
      found.push_back(run);
    }
    return true;
  });
  return found;
}

void discard(Entry& entry, const Vector<Part>& tiered) {
  for (const Part& part : tiered) {
    discard_tiered(entry, part);
  }
}

// Of extents in which no page is tiered any more the tier forgets what it still has: it would bring
// that back with its neighbours. Those in the middle of the part are known to be empty.
void forget_dead_extents(Entry& entry, Part part) {
  const std::uint64_t first = extent_at(entry, part.begin);
  const std::uint64_t last = extent_at(entry, part.end() - 1);
  for (std::uint64_t extent = first; extent <= last; extent += std::max<std::uint64_t>(1, last - first)) {
    const Part whole = extents_part(entry, extent, extent);
    if (!entry.pins.contains(extent) && !entry.pages.any(whole, is_tiered)) {
      discard_tiered(entry, whole);
    }
  }
}

std::size_t mapped_bytes(const Entry& entry, Part part) {
  std::size_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_unmapped(state) ? 0 : run.length;
    return true;
  });
  return sum;
}

// tiered_bytes() counts what the program may touch: a reservation is no need for memory.
std::uint64_t usable_bytes(const Entry& entry, Part part) {
  std::uint64_t sum = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    sum += is_tiered(state) && state.protection != PROT_NONE ? run.length : 0;
    return true;
  });
  return sum;
}

/// Around a change of the states of a part.
class Counting {
 public:
  Counting(Entry& entry, Part part) : entry_(entry), part_(part), before_(usable_bytes(entry, part)) {}
  ~Counting() {
    const std::uint64_t change = usable_bytes(entry_, part_) - before_;  // Wraps, and back.
    entry_.counted += change;
    g_tiered += change;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  Entry& entry_;
  const Part part_;
  const std::uint64_t before_;
};

// What lies in front of the first unmapped page.
Part mapped_front(const Entry& entry, Part part) {
  Part front{part.begin, 0};
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    front.length += is_unmapped(state) ? 0 : run.length;
    return !is_unmapped(state);
  });
  return front;
}

// As the kernel answers where a range has a hole: what is in front of it was done.
int hole_behind(Part front, Part all) {
  if (front.length == all.length) {
    return 0;
  }
  errno = ENOMEM;
  return -1;
}

// Foreign pages of the part are tiermem's again, and absent.
int take_back(Entry& entry, Part part) {
  int error = 0;
  entry.pages.for_runs(part, [&](Part run, const PageState& state) {
    if (is_foreign(state) && error == 0) {
      error = context()->impl().take_back_window(run.begin, run.length);
    }
    return error == 0;
  });
  if (error != 0) {
    log_warn("{} bytes at {} cannot be mapped again: {}", part.length,
             static_cast<void*>(part.begin), std::strerror(error));
    errno = ENOMEM;
  }
  return error == 0 ? 0 : -1;
}

void unlock_pages(const Entry& entry, Part part) {
  if (entry.pages.any(part, [](const PageState& state) { return state.locked; })) {
    best_effort(plain_munlock(part.begin, part.length), "locked pages are only less free to move");
  }
}

void end_entry(Map<std::byte*, Entry>::iterator at) {
  Entry& entry = at->second;
  g_tiered -= entry.counted;
  for (const auto& [extent, view] : entry.pins) {
    (void)context()->release({&view, 1});
  }
  if (take_back(entry, {entry.begin, entry.capacity}) != 0) {
    log_warn("{} bytes of addresses at {} are not used again", entry.capacity,
             static_cast<void*>(entry.begin));
  }
  if (entry.use == Use::mapping) {  // Its memory is there until the mover has come by.
    alter(entry);
    best_effort(tiermem_plain_mprotect(entry.begin, entry.capacity, PROT_NONE),
                "too many mappings: a touch of what was unmapped is no signal yet");
  }
  (void)context()->free(entry.buffer);
  table().entries.erase(at);
}

int unmap_part(Entry& entry, Part part) {
  const std::size_t mapped = std::min(entry.live, mapped_bytes(entry, part));
  if (mapped == 0) {
    return 0;
  }
  if (mapped == entry.live && entry.use != Use::heap) {
    end_entry(table().entries.find(entry.begin));
    return 0;
  }
  const Counting counting(entry, part);
  const Vector<Part> tiered = tiered_in(entry, part);
  PageStates::Change change =
      entry.pages.prepare(part, [](PageState& state) { state = kUnmapped; });
  alter(entry);
  unlock_pages(entry, part);
  // mprotect: ENOMEM, as munmap of a part may answer: there are too many mappings.
  if (take_back(entry, part) != 0 ||
      tiermem_plain_mprotect(part.begin, part.length, PROT_NONE) != 0) {
    return -1;
  }
  discard(entry, tiered);
  entry.pages.apply(change);
  entry.live -= mapped;
  release_pins(entry, extent_at(entry, part.begin), extent_at(entry, part.end() - 1));
  if (!entry.pages.any(outer_extents(entry, part), is_foreign)) {
    forget_dead_extents(entry, part);
  }
  return 0;
}

int renew_part(Entry& entry, Part part, int protection) {
  const Counting counting(entry, part);
  const bool fresh = protection == (PROT_READ | PROT_WRITE);
  const std::size_t unmapped = part.length - mapped_bytes(entry, part);
  const Vector<Part> tiered = tiered_in(entry, part);
  PageStates::Change change = entry.pages.prepare(part, [&](PageState& state) {
    state = PageState{};
    state.protection = static_cast<std::uint8_t>(protection);
  });
  if (!fresh || !entry.pages.plain()) {
    alter(entry);
    unlock_pages(entry, part);
    if (take_back(entry, part) != 0 ||
        tiermem_plain_mprotect(part.begin, part.length, protection) != 0) {
      return -1;
    }
  }
  entry.pages.apply(change);
  if (!settle(entry, part)) {  // Beside foreign pages.
    entry.pages.apply(change);
    return -1;
  }
  discard(entry, tiered);
  entry.live += unmapped;
  return 0;
}

int protect_part(Entry& entry, Part part, int protection) {
  if (protection == (PROT_READ | PROT_WRITE) && entry.pages.plain()) {
    return 0;
  }
  const Counting counting(entry, part);
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change = entry.pages.prepare(front, [&](PageState& state) {
      state.protection = static_cast<std::uint8_t>(protection);
    });
    alter(entry);
    if (tiermem_plain_mprotect(front.begin, front.length, protection) != 0) {
      return -1;
    }
    entry.pages.apply(change);
    if (!settle(entry, front)) {  // Locked pages can be accessed again, and do not fit.
      return -1;
    }
    if (protection == PROT_NONE) {
      // No access is allowed, so that nothing is gained by memory for it.
      const Access access = access_of(entry, front, kRead);
      (void)context()->advise({&access, 1}, Advice::cold);
    }
  }
  return hole_behind(front, part);
}

// The mover copies pages that it cannot move by a mapping of its own, to which the key would not
// give access: pages with a key stay.
int key_part(Entry& entry, Part part, int protection, int key) {
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change = entry.pages.prepare(front, [&](PageState& state) {
      state.protection = static_cast<std::uint8_t>(protection);
      state.keyed = key != 0;
    });
    alter(entry);
    entry.pages.apply(change);
    if (!settle(entry, front) ||
        ::syscall(SYS_pkey_mprotect, front.begin, front.length, protection, key) != 0) {
      const int error = errno;
      entry.pages.apply(change);
      (void)settle(entry, front);
      errno = error;
      return -1;
    }
  }
  return hole_behind(front, part);
}

// What the kernel does to the mapping itself, and does not move a page for.
int advise_mapping(Entry& entry, Part run, int advice) {
  alter(entry);
  return tiermem_plain_madvise(run.begin, run.length, advice);
}

int advise_run(Entry& entry, Part run, const PageState& state, int advice) {
  constexpr int kDontNeedLocked = 24, kCollapse = 25, kGuardInstall = 102, kGuardRemove = 103;
  const Access access = access_of(entry, run, kRead);
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
      if (state.locked) {
        errno = EINVAL;
        return -1;
      }
      [[fallthrough]];
    case kDontNeedLocked:
      discard_tiered(entry, run);
      return 0;
    case MADV_COLD:
    case MADV_PAGEOUT:
      if (state.locked) {
        errno = EINVAL;
        return -1;
      }
      if (advice == MADV_COLD) {
        (void)context()->advise({&access, 1}, Advice::cold);
      } else {
        (void)context()->evict({&access, 1}, kPatience);
      }
      return 0;
    case MADV_WILLNEED:
      (void)context()->advise({&access, 1}, Advice::will_need);
      return 0;
    case MADV_SEQUENTIAL:
      (void)context()->advise({&access, 1}, Advice::sequential);
      return 0;
    case MADV_RANDOM:
      (void)context()->advise({&access, 1}, Advice::random);
      return 0;
    case MADV_NORMAL:
      (void)context()->advise({&access, 1}, Advice::normal);
      return 0;
    case MADV_HUGEPAGE:  // The extents' size decides.
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTFORK:  // A child has the range all the same: the mover keeps it whole.
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
    case kCollapse:
      return tiermem_plain_madvise(run.begin, 0, advice);  // Whether the kernel knows it.
    case MADV_REMOVE:  // For shared memory only.
    case MADV_WIPEONFORK:
    case kGuardInstall:  // As from a kernel before 6.13.
    case kGuardRemove:
      errno = EINVAL;
      return -1;
    default:
      return advise_mapping(entry, run, advice);
  }
}

int advise_part(Entry& entry, Part part, int advice, bool goes_on) {
  int result = 0;
  bool hole = false;
  Part alike{part.begin, 0};  // Tiered runs that differ in protection are advised at once.
  PageState state;
  const auto flush = [&] {
    if (alike.length != 0 && result == 0) {
      result = advise_run(entry, alike, state, advice);
    }
    alike.length = 0;
  };
  entry.pages.for_runs(part, [&](Part run, const PageState& now) {
    if (alike.length != 0 && (!is_tiered(now) || now.locked != state.locked)) {
      flush();
    }
    if (result != 0) {
      return false;
    }
    if (is_tiered(now)) {
      if (alike.length == 0) {
        alike.begin = run.begin;
        state = now;
      }
      alike.length += run.length;
    } else if (is_foreign(now)) {
      result = tiermem_plain_madvise(run.begin, run.length, advice);
      if (result != 0 && errno == ENOMEM && goes_on) {  // A hole in it.
        hole = true;
        result = 0;
      }
    } else {
      hole = true;
    }
    return result == 0 && (goes_on || !hole);
  });
  flush();
  return result == 0 && hole ? no_memory(part) : result;
}

// Holes of extents with a view become zeros. In others the mover would not know of the pages.
void fill_pinned(const Entry& entry, Part part) {
  for (auto pin = entry.pins.lower_bound(extent_at(entry, part.begin)); pin != entry.pins.end();
       ++pin) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin >= part.end()) {
      break;
    }
    std::byte* const begin = std::max(part.begin, extent.begin);
    std::byte* const end = std::min(part.end(), extent.end());
    for (const Part& hole : tiered_in(entry, {begin, static_cast<std::size_t>(end - begin)})) {
      context()->impl().fill_window(hole.begin, hole.length);
    }
  }
}

int lock_part(Entry& entry, Part part, int flags) {
  const Part front = mapped_front(entry, part);
  if (front.length == 0) {
    return hole_behind(front, part);
  }
  PageStates::Change change =
      entry.pages.prepare(front, [](PageState& state) { state.locked = true; });
  alter(entry);
  entry.pages.apply(change);
  const bool settled = settle(entry, front);
  if (settled) {
    fill_pinned(entry, front);  // The kernel brings each page, and its own faults may not be served.
  }
  if (settled && plain_mlock(front.begin, front.length, static_cast<unsigned>(flags)) == 0) {
    return hole_behind(front, part);
  }
  const int error = errno;
  // The kernel locks what it may not bring, too, and says that it could not.
  const bool inaccessible = entry.pages.any(
      front, [](const PageState& state) { return state.protection == PROT_NONE; });
  if (!settled || error != ENOMEM || !inaccessible) {
    entry.pages.apply(change);
    (void)settle(entry, front);
    if (settled) {
      best_effort(plain_munlock(front.begin, front.length), "it need not have been locked");
    }
  }
  errno = error;
  return -1;
}

int unlock_part(Entry& entry, Part part) {
  const Part front = mapped_front(entry, part);
  if (front.length != 0) {
    PageStates::Change change =
        entry.pages.prepare(front, [](PageState& state) { state.locked = false; });
    if (plain_munlock(front.begin, front.length) != 0) {
      return -1;
    }
    entry.pages.apply(change);
    release_pins(entry, extent_at(entry, front.begin), extent_at(entry, front.end() - 1));
  }
  return hole_behind(front, part);
}

// All that the tier has of the part is given up, and extents that are tiered in part are pinned.
int lend_part(Entry& entry, Part part, int protection) {
  const Counting counting(entry, part);
  const std::size_t unmapped = part.length - mapped_bytes(entry, part);
  const Vector<Part> tiered = tiered_in(entry, part);
  const bool locked = entry.pages.any(part, [](const PageState& state) { return state.locked; });
  const bool foreign_before = entry.pages.any(outer_extents(entry, part), is_foreign);
  PageStates::Change change = entry.pages.prepare(part, [&](PageState& state) {
    state = PageState{};
    state.kind = PageState::Kind::foreign;
    state.protection = static_cast<std::uint8_t>(protection);
  });
  entry.pages.apply(change);
  if (!settle(entry, part)) {
    entry.pages.apply(change);
    return -1;
  }
  if (locked) {
    best_effort(plain_munlock(part.begin, part.length), "what is mapped there next is not locked");
  }
  entry.altered = true;
  discard(entry, tiered);
  if (!foreign_before) {
    forget_dead_extents(entry, part);
  }
  context()->impl().lend_window(part.begin, part.length);
  entry.live += unmapped;
  return 0;
}

// Whether the part is tiered, mapped and alike.
bool is_alike(const Entry& entry, Part part, PageState& state) {
  state = entry.pages.at(part.begin);
  return is_tiered(state) && !entry.pages.any(part, [&](const PageState& other) {
    return !is_tiered(other) || other.protection != state.protection ||
           other.locked != state.locked;
  });
}

// Addresses of no region become the program's for good. The buffer that was there may still be on
// its way out.
int give_away(Part part) {
  constexpr int kTries = 2000;
  for (int tries = 0; !context()->impl().give_away(part.begin, part.length); ++tries) {
    if (tries == kTries) {
      return no_memory(part);
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 500'000};
    best_effort(::nanosleep(&pause, nullptr), "a shorter pause will do");
  }
  return 0;
}

// Where the kernel's own faults are not served: this thread touches the pages, without the lock.
int populate_parts(Part range, int advice, Rest rest) {
  const int access = advice == kPopulateWrite ? PROT_WRITE : PROT_READ;
  while (range.length != 0) {
    Part part = range;
    PageState state;
    enum class Whose : std::uint8_t { others, ours, nobody } whose = Whose::others;
    {
      const ArenaScope inside;
      const std::shared_lock lock(table().mutex);
      const auto found = at_or_after(range.begin);
      if (found == table().entries.end() || found->first > range.begin) {
        std::byte* const end = found == table().entries.end() ? range.end() : found->first;
        bool own = false;
        part.length = context()->impl().stretch(
            range.begin, static_cast<std::size_t>(std::min(end, range.end()) - range.begin), own);
        whose = own ? Whose::nobody : Whose::others;
      } else {
        const Entry& entry = found->second;
        std::byte* const end = std::min(range.end(), entry.begin + entry.capacity);
        const PageStates::Run run = entry.pages.first_of(
            {range.begin, static_cast<std::size_t>(end - range.begin)});
        part = run.part;
        state = run.state;
        whose = is_unmapped(state)  ? Whose::nobody
                : is_tiered(state) ? Whose::ours
                                   : Whose::others;
      }
    }
    if (whose == Whose::nobody) {
      return no_memory(part);
    }
    if (whose == Whose::others && rest(part.begin, part.length, advice) != 0) {
      return -1;
    }
    if (whose == Whose::ours && (state.protection & access) == 0) {
      errno = EINVAL;
      return -1;
    }
    for (std::byte* at = part.begin; whose == Whose::ours && at < part.end(); at += kPage) {
      if (access == PROT_WRITE) {
        std::atomic_ref(reinterpret_cast<unsigned char&>(*at)).fetch_or(0);
      } else {
        (void)*static_cast<const volatile std::byte*>(at);
      }
    }
    range = {part.end(), range.length - part.length};
  }
  return 0;
}

int nothing(std::byte*, std::size_t, int) {
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

}  // namespace

std::byte* create_region(Use use, std::size_t length, std::size_t capacity, std::size_t extent) {
  const ArenaScope inside;
  make_table();
  if (capacity < length || capacity > static_cast<std::size_t>(PTRDIFF_MAX) - extent) {
    return nullptr;  // It wrapped, or would.
  }
  BufferOptions options;
  options.flags = kMapped;
  options.extent_bytes = extent;
  options.label = use == Use::heap ? "heap" : use == Use::block ? "malloc" : "mmap";
  // Of whole extents: what is cut off at the end is emptied to the last byte, for who grows again.
  const auto in_extents = [extent](std::size_t n) { return (n + extent - 1) / extent * extent; };
  capacity = in_extents(capacity);
  auto buffer = context()->alloc(capacity, options);
  if (!buffer.ok() && capacity > in_extents(length) && length != 0) {
    capacity = in_extents(length);
    buffer = context()->alloc(capacity, options);
  }
  if (!buffer.ok()) {
    log_warn("{} bytes are taken from the kernel, untiered: {}", length, buffer.message());
    return nullptr;
  }
  const auto address = buffer->address();
  if (!address.ok()) {
    return nullptr;
  }
  std::byte* const begin = *address;
  {
    const Writing lock;
    Entry& entry = table().entries.try_emplace(begin).first->second;
    entry.begin = begin;
    entry.length = entry.live = entry.counted = length;
    entry.capacity = capacity;
    entry.extent = extent;
    entry.buffer = buffer->detach();
    entry.use = use;
    if (use == Use::mapping) {  // What is behind the last page is not the program's.
      const Part behind{begin + length, capacity - length};
      entry.pages.change(behind, [](PageState& state) { state = kUnmapped; });
      if (behind.length != 0) {
        alter(entry);
        best_effort(tiermem_plain_mprotect(behind.begin, behind.length, PROT_NONE),
                    "too many mappings: a touch behind the end is no signal");
      }
    }
  }
  g_tiered += length;
  auto lowest = g_lowest.load(std::memory_order_relaxed);
  while (number(begin) < lowest && !g_lowest.compare_exchange_weak(lowest, number(begin))) {
  }
  auto highest = g_highest.load(std::memory_order_relaxed);
  const std::uintptr_t end = number(begin) + capacity + extent;
  while (end > highest && !g_highest.compare_exchange_weak(highest, end)) {
  }
  return begin;
}

std::uint64_t tiered_bytes() {
  return g_tiered.load(std::memory_order_relaxed);
}

bool touches_regions(const void* address, std::size_t length) {
  return number(address) < g_highest.load(std::memory_order_relaxed) &&
         number(address) + length > g_lowest.load(std::memory_order_relaxed);
}

bool find_region(const void* address, Region& region) {
  if (!touches_regions(address, 1)) {
    return false;
  }
  const std::shared_lock lock(table().mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto found = at_or_after(at);
  if (found == table().entries.end() || found->first > at) {
    return false;
  }
  region = found->second;
  return true;
}

Stretch stretch_at(const void* address, std::size_t length) {
  if (!touches_regions(address, 1)) {
    return {length, false};
  }
  if (t_writing != 0) {
    return {length, true};
  }
  const std::shared_lock lock(table().mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto most = [&](const std::byte* end) {
    return std::min(length, static_cast<std::size_t>(end - at));
  };
  const auto found = at_or_after(at);
  if (found == table().entries.end()) {
    return {length, false};
  }
  const Entry& entry = found->second;
  if (entry.begin > at) {
    return {most(entry.begin), false};
  }
  const std::byte* const end = entry.begin + entry.capacity;
  const PageStates::Run run = entry.pages.first_of({at, most(end)});
  Stretch stretch{run.part.length, is_tiered(run.state), run.state.protection};
  auto pin = entry.pins.upper_bound(extent_at(entry, at));
  if (pin != entry.pins.begin() && std::prev(pin)->first == extent_at(entry, at)) {
    --pin;
  }
  if (pin != entry.pins.end()) {
    const Part extent = extents_part(entry, pin->first, pin->first);
    if (extent.begin <= at) {
      stretch.may_be_absent = false;
      stretch.bytes = std::min(stretch.bytes, most(extent.end()));
    } else {
      stretch.bytes = std::min(stretch.bytes, most(extent.begin));
    }
  }
  return stretch;
}

std::size_t accessible_bytes(const void* address, std::size_t length, int access) {
  if (!touches_regions(address, length) || t_writing != 0) {
    return length;
  }
  const std::shared_lock lock(table().mutex);
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(address));
  std::byte* reached = begin + length;
  const auto stop_at = [&](std::byte* at) {
    reached = std::max(at, begin);
    return -1;
  };
  (void)for_parts(
      whole_pages_of({begin, length}), 0, nothing, [&](Part part) { return stop_at(part.begin); },
      [&](Entry& entry, Part part) {
        int result = 0;
        entry.pages.for_runs(part, [&](Part run, const PageState& state) {
          if (is_unmapped(state) || (state.protection & access) == 0) {
            result = stop_at(run.begin);
          }
          return result == 0;
        });
        return result;
      });
  return std::min(length, static_cast<std::size_t>(reached - begin));
}

bool free_region(std::byte* begin, Use use) {
  if (!touches_regions(begin, 1)) {
    return false;
  }
  const ArenaScope inside;
  const Writing lock;
  const auto found = table().entries.find(begin);
  if (found == table().entries.end() || found->second.use != use) {
    return false;
  }
  end_entry(found);
  return true;
}

void resize_region(std::byte* begin, std::size_t length) {
  const ArenaScope inside;
  const Writing lock;
  Entry& entry = table().entries.at(begin);
  if (length < entry.length) {
    discard_tiered(entry, {begin + length, entry.capacity - length});
  }
  g_tiered += length - entry.length;
  entry.counted += length - entry.length;
  entry.live = entry.live + length - entry.length;
  entry.length = length;
}

void move_part(Part from, std::byte* to) {
  Region source, target;
  if (find_region(from.begin, source) && find_region(to, target) &&
      context()
          ->move_bytes(target.buffer, static_cast<std::uint64_t>(to - target.begin), source.buffer,
                       static_cast<std::uint64_t>(from.begin - source.begin), from.length)
          .ok()) {
    return;
  }
  memcpy(to, from.begin, from.length);
}

int unmap_parts(Part range, Rest rest) {
  return guarded([&] { return for_parts(range, 0, rest, pass_over, unmap_part); }, -1);
}

int renew_parts(Part range, int protection, Rest rest) {
  return guarded(
      [&] {
        const auto fresh = [&](Part part) {
          return give_away(part) == 0 ? rest(part.begin, part.length, protection) : -1;
        };
        return for_parts(range, protection, rest, fresh, [&](Entry& entry, Part part) {
          return renew_part(entry, part, protection);
        });
      },
      -1);
}

int protect_parts(Part range, int protection, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, protection, rest, no_memory, [&](Entry& entry, Part part) {
          return protect_part(entry, part, protection);
        });
      },
      -1);
}

int protect_by_key(Part range, int protection, int key, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, protection, rest, no_memory, [&](Entry& entry, Part part) {
          return key_part(entry, part, protection, key);
        });
      },
      -1);
}

// A hole does not end it: the kernel goes on, and says so at last.
int advise_parts(Part range, int advice, Rest rest) {
  const bool goes_on = advice != kPopulateRead && advice != kPopulateWrite;
  if (!goes_on && context()->impl().dram().facts().userfault.source == UserfaultSource::user_mode) {
    return populate_parts(range, advice, rest);
  }
  const std::shared_lock lock(table().mutex);
  bool hole = false;
  const auto passed_over = [&](int result) {
    const bool over = result != 0 && errno == ENOMEM && goes_on;
    hole = hole || over;
    return over ? 0 : result;
  };
  const int result = for_parts(
      range, advice,
      [&](std::byte* begin, std::size_t length, int what) {
        return passed_over(rest(begin, length, what));
      },
      [&](Part part) { return passed_over(no_memory(part)); },
      [&](Entry& entry, Part part) { return passed_over(advise_part(entry, part, advice, goes_on)); });
  if (result == 0 && hole) {
    if (tiermem_plain_madvise(range.begin, 0, advice) == 0) {  // The kernel judges that first.
      errno = ENOMEM;
    }
    return -1;
  }
  return result;
}

int lock_parts(Part range, int flags, Rest rest) {
  return guarded(
      [&] {
        return for_parts(range, flags, rest, no_memory, [&](Entry& entry, Part part) {
          return lock_part(entry, part, flags);
        });
      },
      -1);
}

int unlock_parts(Part range, Rest rest) {
  return guarded([&] { return for_parts(range, 0, rest, no_memory, unlock_part); }, -1);
}

int check_mapped(Part range) {
  const std::shared_lock lock(table().mutex);
  return for_parts(range, 0, nothing, no_memory, [](Entry& entry, Part part) {
    return hole_behind(mapped_front(entry, part), part);
  });
}

// Where the new mapping is refused after all, the pages are fresh memory: its bytes were to be
// replaced.
void* lend_parts(Part range, int protection, void* (*place)(Part range, void* argument),
                 void* argument) {
  return guarded(
      [&]() -> void* {
        const auto lend = [&](Entry& entry, Part part) {
          return lend_part(entry, part, protection);
        };
        if (for_parts(range, 0, nothing, give_away, lend) != 0) {
          return MAP_FAILED;
        }
        void* const placed = place(range, argument);
        if (placed == MAP_FAILED) {
          const int error = errno;
          (void)for_parts(range, 0, nothing, pass_over, [](Entry& entry, Part part) {
            return renew_part(entry, part, PROT_READ | PROT_WRITE);
          });
          errno = error;
        }
        return placed;
      },
      MAP_FAILED);
}

bool movable_part(Part part, PageState& state) {
  const std::shared_lock lock(table().mutex);
  const auto found = at_or_after(part.begin);
  return found != table().entries.end() && found->first <= part.begin &&
         part.end() <= found->first + found->second.capacity &&
         is_alike(found->second, part, state);
}

bool all_unmapped(Part range) {
  const std::shared_lock lock(table().mutex);
  return for_parts(
             range, 0, [](std::byte*, std::size_t, int) { return -1; }, pass_over,
             [](Entry& entry, Part part) { return mapped_bytes(entry, part) == 0 ? 0 : -1; }) == 0;
}

bool is_in_region(const void* address) {
  const std::shared_lock lock(table().mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto found = at_or_after(at);
  return found != table().entries.end() && found->first <= at;
}

bool grow_part(Part part, std::size_t to) {
  return guarded(
      [&] {
        const auto found = at_or_after(part.begin);
        Entry& entry = found->second;
        const Part more{part.end(), to - part.length};
        if (more.end() > entry.begin + entry.capacity || mapped_bytes(entry, more) != 0) {
          return false;
        }
        const PageState last = entry.pages.at(part.end() - kPage);
        if (renew_part(entry, more, last.protection) != 0) {
          return false;
        }
        return !last.locked || lock_part(entry, more, 0) == 0;
      },
      false);
}

bool pin_all() {
  if (!have_table()) {
    return true;
  }
  return guarded(
      [] {
        return std::all_of(table().entries.begin(), table().entries.end(), [](auto& at) {
          Entry& entry = at.second;
          const Part all{entry.begin, entry.length};
          PageStates::Change change = entry.pages.prepare(all, [](PageState& state) {
            const bool brought = is_tiered(state) && state.protection != PROT_NONE;
            state.kept = static_cast<std::uint16_t>(state.kept + (brought ? 1 : 0));
          });
          entry.pages.apply(change);
          return settle(entry, all);
        });
      },
      false);
}

void bring_stack(const void* top) {
  constexpr std::size_t kDeep = std::size_t{128} << 10;
  Region region;
  auto* const end = static_cast<const std::byte*>(top) - 1;
  if (!find_region(end, region)) {
    return;
  }
  const std::byte* const least = std::max<const std::byte*>(region.begin, end - kDeep);
  for (const std::byte* at = end; at >= least; at -= std::min<std::size_t>(kPage, at - least + 1)) {
    (void)*static_cast<const volatile std::byte*>(at);
  }
}

bool keep_resident(Part part) {
  if (!have_table() || !touches_regions(part.begin, part.length)) {
    return true;
  }
  return guarded(
      [&] {
        return for_parts(whole_pages_of(part), 0, nothing, pass_over, [](Entry& entry, Part piece) {
          PageStates::Change change = entry.pages.prepare(piece, [](PageState& state) {
            state.kept = static_cast<std::uint16_t>(state.kept + (is_tiered(state) ? 1 : 0));
          });
          entry.pages.apply(change);
          if (settle(entry, piece)) {
            return 0;
          }
          entry.pages.apply(change);
          return -1;
        }) == 0;
      },
      false);
}

void let_leave(Part part) {
  if (!have_table() || !touches_regions(part.begin, part.length)) {
    return;
  }
  (void)guarded(
      [&] {
        return for_parts(whole_pages_of(part), 0, nothing, pass_over, [](Entry& entry, Part piece) {
          entry.pages.change(piece, [](PageState& state) {
            state.kept = static_cast<std::uint16_t>(state.kept - (state.kept != 0 ? 1 : 0));
          });
          release_pins(entry, extent_at(entry, piece.begin), extent_at(entry, piece.end() - 1));
          return 0;
        });
      },
      -1);
}

// A child of fork has none of its parent's locks.
static void forget_locks() {
  (void)guarded(
      [] {
        for (auto& [begin, entry] : table().entries) {
          const Part all{entry.begin, entry.capacity};
          if (entry.pages.any(all, [](const PageState& state) { return state.locked; })) {
            entry.pages.change(all, [](PageState& state) { state.locked = false; });
            release_pins(entry, 0, extent_at(entry, all.end() - 1));
          }
        }
        return 0;
      },
      -1);
}

void lock_regions() {
  if (have_table()) {
    ++t_writing;
    table().mutex.lock();
  }
}

void unlock_regions() {
  if (have_table()) {
    table().mutex.unlock();
    --t_writing;
  }
}

void renew_regions_lock() {
  if (have_table()) {
    new (&table().mutex) std::shared_mutex;
    --t_writing;
    forget_locks();
  }
}

}  // namespace tiermem::preload

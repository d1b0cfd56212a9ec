// The table of regions, by address.
#include "preload/region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <shared_mutex>

#include "base/arena.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/tiering.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
// Bringing in what is to stay may have to wait for others to be written.
constexpr Timeout kPatience = Timeout::seconds(60);

struct Pin {
  Part part;  // As the program named it.
  ViewRecord view;
};

struct Entry : Region {
  Map<std::byte*, std::size_t> unmapped;  // Parts that the program has unmapped; never adjacent.
  std::size_t live = 0;
  Vector<Pin> pins;
  bool undumped = false;  // Parts are not for core dumps.
  bool overlaid = false;  // Something else was mapped over a part: the window is never reused.
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

/// Calls `tier(entry, part)` for what lies in regions and `rest` for what lies between; the first
/// error ends it.
template <typename Tier>
int for_parts(Part range, int argument, Rest rest, Tier&& tier) {
  const ArenaScope inside;
  std::byte* at = range.begin;
  while (at < range.end()) {
    const auto found = at_or_after(at);
    std::byte* const next =
        found == table().entries.end() ? range.end() : std::min(found->first, range.end());
    if (at < next) {
      if (rest(at, static_cast<std::size_t>(next - at), argument) != 0) {
        return -1;
      }
      at = next;
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

bool pin(Entry& entry, Part part) {
  for (const Pin& there : entry.pins) {
    if (there.part.begin <= part.begin && part.end() <= there.part.end()) {
      return true;
    }
  }
  ViewRecord view;
  const Access access = access_of(entry, part, kWrite);
  entry.pins.reserve(entry.pins.size() + 1);  // Nothing is thrown while the view is held.
  const Status status = context()->acquire({&access, 1}, kPatience, {&view, 1});
  if (!status.ok()) {
    log_warn("{} bytes at {} cannot be kept resident: {}", part.length,
             static_cast<void*>(part.begin), status.message());
    errno = ENOMEM;
    return false;
  }
  entry.pins.push_back({part, view});
  return true;
}

void unpin_inside(Entry& entry, Part part) {
  std::erase_if(entry.pins, [&](const Pin& there) {
    const bool inside = part.begin <= there.part.begin && there.part.end() <= part.end();
    if (inside) {
      (void)context()->release({&there.view, 1});
    }
    return inside;
  });
}

Part whole_pages_of(Part part) {
  const std::size_t head = number(part.begin) % kPage;
  return {part.begin - head, (head + part.length + kPage - 1) / kPage * kPage};
}

void discard(Entry& entry, Part part) {
  const Access access = access_of(entry, part, kDiscard);
  if (const Status status = context()->advise({&access, 1}, Advice::dont_need); !status.ok()) {
    log_error("{} bytes at {} could not be emptied: {}", part.length,
              static_cast<void*>(part.begin), status.message());
  }
}

// Returns how many bytes of the part were mapped until now.
std::size_t note_unmapped(Entry& entry, Part part) {
  std::byte* begin = part.begin;
  std::byte* end = part.end();
  std::size_t known = 0;
  auto at = entry.unmapped.upper_bound(begin);
  if (at != entry.unmapped.begin() && std::prev(at)->first + std::prev(at)->second >= begin) {
    --at;
  }
  while (at != entry.unmapped.end() && at->first <= end) {
    std::byte* const other_end = at->first + at->second;
    known += static_cast<std::size_t>(std::max<std::ptrdiff_t>(
        0, std::min(other_end, part.end()) - std::max(at->first, part.begin)));
    begin = std::min(begin, at->first);
    end = std::max(end, other_end);
    at = entry.unmapped.erase(at);
  }
  entry.unmapped.emplace(begin, static_cast<std::size_t>(end - begin));
  return part.length - known;
}

void note_mapped(Entry& entry, Part part) {
  auto at = entry.unmapped.upper_bound(part.begin);
  if (at != entry.unmapped.begin()) {
    --at;
  }
  while (at != entry.unmapped.end() && at->first < part.end()) {
    const Part hole{at->first, at->second};
    if (hole.end() <= part.begin) {
      ++at;
      continue;
    }
    at = entry.unmapped.erase(at);
    if (hole.begin < part.begin) {
      entry.unmapped.emplace(hole.begin, static_cast<std::size_t>(part.begin - hole.begin));
    }
    if (part.end() < hole.end()) {
      entry.unmapped.emplace(part.end(), static_cast<std::size_t>(hole.end() - part.end()));
    }
    entry.live += static_cast<std::size_t>(std::min(hole.end(), part.end()) -
                                           std::max(hole.begin, part.begin));
  }
}

// Who gets the addresses next begins without the advice; and a mapping that it has cut in two is
// one again.
void forget_advice(const Entry& entry, Part part) {
  if (entry.undumped) {
    best_effort(tiermem_plain_madvise(part.begin, part.length, MADV_DODUMP),
                "a core file then lacks these bytes");
  }
}

void end_entry(Map<std::byte*, Entry>::iterator at) {
  Entry& entry = at->second;
  g_tiered -= entry.length;
  if (entry.overlaid) {
    entry.live = 0;  // Its addresses carry mappings of others and are not given out again.
    return;
  }
  for (const Pin& pin : entry.pins) {
    best_effort(tiermem_plain_mprotect(pin.part.begin, pin.part.length, PROT_READ | PROT_WRITE),
                "without a mapping to spare the addresses keep the program's protection");
    best_effort(plain_munlock(pin.part.begin, pin.part.length), "it need not have been locked");
    (void)context()->release({&pin.view, 1});
  }
  forget_advice(entry, {entry.begin, entry.length});
  (void)context()->free(entry.buffer);
  table().entries.erase(at);
}

int unmap_part(Entry& entry, Part part) {
  if (entry.overlaid) {
    best_effort(tiermem_plain_mmap(part.begin, part.length, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0),
                "the addresses are not given out again, whatever is there");
  }
  const std::size_t unmapped = std::min(entry.live, note_unmapped(entry, part));
  entry.live -= unmapped;
  if (entry.live == 0 && unmapped != 0 && entry.use != Use::heap) {
    end_entry(table().entries.find(entry.begin));
  } else if (!entry.overlaid) {
    best_effort(tiermem_plain_mprotect(part.begin, part.length, PROT_READ | PROT_WRITE),
                "without a mapping to spare the addresses keep the program's protection");
    unpin_inside(entry, part);
    forget_advice(entry, part);
    discard(entry, part);
  }
  return 0;
}

int advise_part(Entry& entry, Part part, int advice) {
  const Access access = access_of(entry, part, kRead);
  Advice ours = Advice::normal;
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_REMOVE:
      discard(entry, part);
      return 0;
    case MADV_WILLNEED:
      ours = Advice::will_need;
      break;
    case MADV_SEQUENTIAL:
      ours = Advice::sequential;
      break;
    case MADV_RANDOM:
      ours = Advice::random;
      break;
    case MADV_COLD:
      ours = Advice::cold;
      break;
    case MADV_PAGEOUT:
      (void)context()->evict({&access, 1}, kPatience);
      return 0;
    case MADV_NORMAL:
    case MADV_HUGEPAGE:  // The extents' size decides.
    case MADV_NOHUGEPAGE:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTFORK:  // A child has the range all the same: the mover keeps it whole.
    case MADV_DOFORK:
      return 0;
    case MADV_WIPEONFORK:
      errno = EINVAL;  // As from a kernel that has not got it.
      return -1;
    case MADV_DONTDUMP:
      std::atomic_ref(entry.undumped).store(true);  // Others may give it at the same time.
      [[fallthrough]];
    default:
      // What concerns the mapping and not its pages (core dumps, children, populating).
      return tiermem_plain_madvise(part.begin, part.length, advice);
  }
  (void)context()->advise({&access, 1}, ours);
  return 0;
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
    Entry& entry = table().entries[begin];
    entry.begin = begin;
    entry.length = entry.live = length;
    entry.capacity = capacity;
    entry.buffer = buffer->detach();
    entry.use = use;
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
  Stretch stretch{most(entry.begin + entry.capacity), true};
  for (const Pin& pin : entry.pins) {
    if (pin.part.begin <= at && at < pin.part.end()) {
      return {most(pin.part.end()), false};
    }
    if (pin.part.begin > at) {
      stretch.bytes = std::min(stretch.bytes, most(pin.part.begin));
    }
  }
  return stretch;
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
    discard(entry, {begin + length, entry.capacity - length});
  }
  g_tiered += length - entry.length;
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
  const Writing lock;
  return for_parts(range, 0, rest, unmap_part);
}

int renew_part(Part range) {
  const Writing lock;
  return for_parts(range, 0, nullptr, [](Entry& entry, Part part) {
    if (tiermem_plain_mprotect(part.begin, part.length, PROT_READ | PROT_WRITE) != 0) {
      return -1;
    }
    unpin_inside(entry, part);
    note_mapped(entry, part);
    discard(entry, part);
    return 0;
  });
}

int protect_parts(Part range, int protection, Rest rest) {
  const Writing lock;
  return for_parts(range, protection, rest, [&](Entry& entry, Part part) {
    const bool plain = protection == (PROT_READ | PROT_WRITE);
    if (!plain && !pin(entry, part)) {
      return -1;
    }
    const int result = tiermem_plain_mprotect(part.begin, part.length, protection);
    if (plain && result == 0) {
      unpin_inside(entry, part);
    }
    return result;
  });
}

int advise_parts(Part range, int advice, Rest rest) {
  const std::shared_lock lock(table().mutex);
  return for_parts(range, advice, rest,
                   [&](Entry& entry, Part part) { return advise_part(entry, part, advice); });
}

int lock_parts(Part range, int flags, Rest rest) {
  const Writing lock;
  return for_parts(range, flags, rest, [&](Entry& entry, Part part) {
    return pin(entry, part) ? plain_mlock(part.begin, part.length, static_cast<unsigned>(flags))
                            : -1;
  });
}

int unlock_parts(Part range, Rest rest) {
  const Writing lock;
  return for_parts(range, 0, rest, [&](Entry& entry, Part part) {
    const int result = plain_munlock(part.begin, part.length);
    unpin_inside(entry, part);
    return result;
  });
}

bool leave_tiers(Part range) {
  const Writing lock;
  return for_parts(
             range, 0, [](std::byte*, std::size_t, int) { return 0; },
             [&](Entry& entry, Part part) {
               if (!pin(entry, part)) {
                 return -1;
               }
               note_mapped(entry, part);
               entry.overlaid = true;
               return 0;
             }) == 0;
}

bool pin_all() {
  if (!have_table()) {
    return true;
  }
  const ArenaScope inside;
  const Writing lock;
  return std::all_of(table().entries.begin(), table().entries.end(), [](auto& at) {
    Entry& entry = at.second;
    return entry.length == 0 || pin(entry, {entry.begin, entry.length});
  });
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
  const Writing lock;
  return for_parts(
             whole_pages_of(part), 0, [](std::byte*, std::size_t, int) { return 0; },
             [](Entry& entry, Part piece) { return pin(entry, piece) ? 0 : -1; }) == 0;
}

void let_leave(Part part) {
  if (!have_table() || !touches_regions(part.begin, part.length)) {
    return;
  }
  const Writing lock;
  (void)for_parts(
      whole_pages_of(part), 0, [](std::byte*, std::size_t, int) { return 0; },
      [](Entry& entry, Part piece) {
        unpin_inside(entry, piece);
        return 0;
      });
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
  }
}

}  // namespace tiermem::preload

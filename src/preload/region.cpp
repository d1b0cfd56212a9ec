// The table of regions, by address.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/region_table.hpp"

namespace tiermem::preload {
namespace regions {
namespace {

// Never destroyed: memory is freed after the last exit handler, too.
alignas(Table) constinit std::byte g_table_room[sizeof(Table)]{};
constinit std::atomic<bool> g_table_made{false};

// All regions so far lie between these, and the range only grows. Relaxed: a thread that does not
// see a new region yet cannot know its addresses.
constinit std::atomic<std::uintptr_t> g_lowest{~std::uintptr_t{0}}, g_highest{0};

constinit std::atomic<std::uint64_t> g_tiered{0};  // Statistics.

void make_table() {
  static const bool made = [] {
    new (g_table_room) Table;
    g_table_made.store(true, std::memory_order_release);
    return true;
  }();
  (void)made;
}

}  // namespace

thread_local constinit unsigned t_writing = 0;

Table& table() {
  return *std::launder(reinterpret_cast<Table*>(g_table_room));
}

bool have_table() {
  return g_table_made.load(std::memory_order_acquire);
}

void count_tiered(std::uint64_t change) {
  g_tiered += change;
}

void end_entry(Map<std::byte*, Entry>::iterator at) {
  Entry& entry = at->second;
  g_tiered -= entry.counted;
  for (const auto& [extent, view] : entry.pins) {
    (void)context()->release({&view, 1});
  }
  if (take_back(entry, {entry.begin, entry.capacity}) != 0) {
    log_warn("{} bytes of addresses at {} cannot be reused", entry.capacity,
             static_cast<void*>(entry.begin));
  }
  if (entry.use == Use::mapping) {  // Its memory stays until the mover releases it.
    alter(entry);
    best_effort(tiermem_plain_mprotect(entry.begin, entry.capacity, PROT_NONE),
                "too many mappings: a touch of unmapped bytes raises no signal yet");
  }
  (void)context()->free(entry.buffer);
  table().entries.erase(at);
}

}  // namespace regions

using namespace regions;  // NOLINT: what follows is declared in region.hpp.

std::byte* create_region(Use use, std::size_t length, std::size_t capacity, std::size_t extent) {
  const ArenaScope inside;
  const NoSignals quiet;  // The mover may need the arena, of which this thread holds locks.
  make_table();
  if (capacity < length || capacity > static_cast<std::size_t>(PTRDIFF_MAX) - extent) {
    return nullptr;  // The sum wrapped, or would.
  }
  BufferOptions options;
  options.flags = kMapped;
  options.extent_bytes = extent;
  options.label = use == Use::heap ? "heap" : use == Use::block ? "malloc" : "mmap";
  // Whole extents: a region that shrinks is emptied up to its last byte, so that it reads as zeros
  // when it grows again.
  const auto in_extents = [extent](std::size_t n) { return round_up(n, extent); };
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
  const auto enter = [&] {
    PageStates pages;
    const Part behind{begin + length, use == Use::mapping ? capacity - length : 0};
    pages.change(behind, [](PageState& state) { state = kUnmapped; });
    // The last call that may throw.
    Entry& entry = table().entries.try_emplace(begin).first->second;
    entry.begin = begin;
    entry.length = entry.live = entry.counted = length;
    entry.capacity = capacity;
    entry.extent = extent;
    entry.buffer = buffer->detach();
    entry.use = use;
    entry.pages = std::move(pages);
    if (behind.length != 0) {  // These bytes are not the program's.
      alter(entry);
      best_effort(tiermem_plain_mprotect(behind.begin, behind.length, PROT_NONE),
                  "too many mappings: a touch behind the end raises no signal");
    }
    return true;
  };
  if (!guarded(enter, false)) {
    return nullptr;
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
  const Reading lock;
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
  const Reading lock;
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
  const Reading lock;
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
          // Processors read what they may write.
          const int implied = (state.protection & PROT_WRITE) != 0 ? PROT_READ : 0;
          if (is_unmapped(state) || ((state.protection | implied) & access) == 0) {
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
    discard_own(entry, {begin + length, entry.capacity - length});
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
    table().mutex.follow_fork();
    --t_writing;
    forget_locks();
  }
}

}  // namespace tiermem::preload

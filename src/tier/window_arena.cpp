// Cutting windows: the smallest hole that fits, lowest address first among equals.
#include "tier/window_arena.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace tiermem {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where ranges are placed, one behind the other; an end of 0: anywhere. The end is written before
// there is an arena.
constinit std::atomic<std::uint64_t> g_next_place{0};
constinit std::uint64_t g_end_of_places = 0;

// What others have mapped there meanwhile is stepped over.
Result<host::AddressRange> reserve_range(host::ReserveOptions options) {
  if (g_end_of_places == 0) {
    return host::reserve(options);
  }
  options.exactly = true;
  for (;;) {
    std::uint64_t place = g_next_place.load();
    if (options.bytes > g_end_of_places - place) {
      return fail(Code::no_capacity, "no {} of the address space for windows are left",
                  human_bytes(options.bytes));
    }
    options.near = reinterpret_cast<std::byte*>(place);
    auto range = host::reserve(options);
    const bool taken =
        !range.ok() && range.status().info() != nullptr && range.status().info()->native == EEXIST;
    if (!range.ok() && !taken) {
      return range;
    }
    g_next_place.compare_exchange_strong(place, place + options.bytes);
    if (range.ok()) {
      return range;
    }
  }
}

using Holes = Map<std::uint64_t, std::uint64_t>;
using HolesBySize = Set<std::pair<std::uint64_t, std::uint64_t>>;

// The hole at `address` is at `begin` now, with `bytes`. Allocates nothing.
void change_hole(Holes& holes, HolesBySize& holes_by_size, std::uint64_t address,
                 std::uint64_t begin, std::uint64_t bytes) {
  auto hole = holes.extract(address);
  auto by_size = holes_by_size.extract({hole.mapped(), address});
  hole.key() = begin;
  hole.mapped() = bytes;
  by_size.value() = {bytes, begin};
  holes.insert(std::move(hole));
  holes_by_size.insert(std::move(by_size));
}

}  // namespace

void WindowArena::place_between(std::uint64_t begin, std::uint64_t bytes) {
  g_next_place = begin;
  g_end_of_places = begin + bytes;
}

WindowArena::WindowArena(const WindowArenaOptions& options) : options_(options) {}

Result<std::byte*> WindowArena::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  if (bytes == 0 || alignment < host::kPage || (alignment & (alignment - 1)) != 0 ||
      bytes > std::numeric_limits<std::uint64_t>::max() / 4) {
    return fail(
        Code::invalid_argument,
        "a window of {} bytes in extents of {}: both must be above 0, the extent a power of "
        "two of at least 4096",
        bytes, alignment);
  }
  bytes = round_up(bytes, alignment);
  const std::lock_guard lock(mutex_);
  Fit fit = find(bytes, alignment);
  if (fit.address == 0) {
    if (Status extended = extend(bytes + alignment); !extended.ok()) {
      return extended;
    }
    fit = find(bytes, alignment);
  }
  // What allocates comes first: where it is refused, the hole is as it was.
  const std::uint64_t end = fit.address + bytes;
  const std::uint64_t before = fit.address - fit.hole;
  const std::uint64_t behind = fit.hole + holes_.at(fit.hole) - end;
  const auto window = windows_.emplace(fit.address, bytes).first;
  try {
    if (before > 0 && behind > 0) {
      add_hole(end, behind);
    }
  } catch (...) {
    windows_.erase(window);
    throw;
  }
  if (before > 0) {
    change_hole(holes_, holes_by_size_, fit.hole, fit.hole, before);
  } else if (behind > 0) {
    change_hole(holes_, holes_by_size_, fit.hole, end, behind);
  } else {
    remove_hole(fit.hole);
  }
  window_bytes_ += bytes;
  return reinterpret_cast<std::byte*>(fit.address);
}

std::uint64_t WindowArena::size_of(const std::byte* window) const {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(reinterpret_cast<std::uint64_t>(window));
  return found == windows_.end() ? 0 : found->second;
}

void WindowArena::release(std::byte* window) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(reinterpret_cast<std::uint64_t>(window));
  if (found == windows_.end()) {
    return;
  }
  std::uint64_t address = found->first;
  std::uint64_t bytes = found->second;
  windows_.erase(found);
  window_bytes_ -= bytes;
  std::uint64_t neighbour = 0;  // The hole that becomes larger; 0: there is none.
  if (const auto after = holes_.find(address + bytes); after != holes_.end()) {
    bytes += after->second;
    neighbour = after->first;
  }
  if (auto before = holes_.lower_bound(address); before != holes_.begin()) {
    --before;
    if (before->first + before->second == address) {
      if (neighbour != 0) {
        remove_hole(neighbour);
      }
      address = neighbour = before->first;
      bytes += before->second;
    }
  }
  if (neighbour != 0) {
    change_hole(holes_, holes_by_size_, neighbour, address, bytes);
    return;
  }
  try {
    add_hole(address, bytes);
  } catch (const std::bad_alloc&) {
    // No memory to note the hole: its addresses are not used again, which costs no memory.
  }
}

int WindowArena::follow_fork() {
  for (host::AddressRange& range : ranges_) {
    range.adopt();
    const int error = options_.registered_with == nullptr
                          ? 0
                          : options_.registered_with->register_missing(range.data(), range.bytes(),
                                                                       options_.watch);
    if (error != 0) {
      return error;
    }
  }
  return 0;
}

void WindowArena::close() {
  for (const host::AddressRange& range : ranges_) {
    host::close_range(range.data(), range.bytes());
  }
}

std::uint64_t WindowArena::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const host::AddressRange& range : ranges_) {
    sum += range.bytes();
  }
  return sum;
}

std::uint64_t WindowArena::window_bytes() const {
  const std::lock_guard lock(mutex_);
  return window_bytes_;
}

// Ranges that happen to be neighbours may merge into one hole; a window across both is fine, since
// both are registered and of one kind, and neither is given back before the end.
Status WindowArena::extend(std::uint64_t bytes) {
  // The program needs address space too: where it is limited, a quarter is taken at most, unless a
  // window needs more.
  const std::uint64_t limit = host::address_space_limit();
  const bool limited = limit != std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t least =
      round_up(limited ? bytes : std::max(bytes, options_.least_bytes), host::kHugePage);
  std::uint64_t size =
      std::min(options_.reserve_bytes, limit / 4) / host::kHugePage * host::kHugePage;
  size = std::max(size, least);
  ranges_.reserve(ranges_.size() + 1);  // A hole must never outlive its range.
  for (;;) {
    auto range = reserve_range({.bytes = size, .accessible = options_.accessible});
    if (range.ok()) {
      Status dressed = dress(range->data(), size);
      if (dressed.ok() && options_.trap != nullptr) {
        dressed = options_.trap->add(range->data(), size);
      }
      if (!dressed.ok()) {
        return dressed;
      }
      add_hole(reinterpret_cast<std::uint64_t>(range->data()), size);
      ranges_.push_back(std::move(*range));
      return {};
    }
    if (size == least) {
      return std::move(range).status();
    }
    size = std::max(round_up(size / 2, host::kHugePage), least);
  }
}

Status WindowArena::dress(std::byte* address, std::uint64_t bytes) const {
  // Refused advice (a kernel without huge pages) costs speed only. Closed memory gets none, so that
  // closing an extent again makes it like its neighbours.
  if (options_.accessible) {
    host::advise(address, bytes, options_.huge ? host::Advise::huge : host::Advise::no_huge);
  }
  if (!options_.inherited) {
    if (const int error = host::advise(address, bytes, host::Advise::dont_fork); error != 0) {
      return fail_native(Code::unavailable, error, "MADV_DONTFORK of windows: {}",
                         std::strerror(error));
    }
  }
  if (options_.registered_with != nullptr) {
    if (const int error =
            options_.registered_with->register_missing(address, bytes, options_.watch);
        error != 0) {
      return fail_native(Code::unavailable, error,
                         "userfaultfd refused to register {} of windows: {}", human_bytes(bytes),
                         std::strerror(error));
    }
  }
  return {};
}

// Opened last: who touches it before it is registered would see zeros.
int WindowArena::renew(std::byte* address, std::uint64_t bytes) const {
  if (const int error = host::close_range(address, bytes); error != 0) {
    return error;
  }
  const Status dressed = dress(address, bytes);
  if (!dressed.ok()) {
    return dressed.info()->native;
  }
  return options_.accessible ? host::open_range(address, bytes) : 0;
}

bool WindowArena::contains(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const host::AddressRange& range) { return range.contains(address); });
}

WindowArena::Fit WindowArena::find(std::uint64_t bytes, std::uint64_t alignment) const {
  // A few snug holes, whose place may be misaligned, then one with room for any alignment.
  const auto fit_in = [&](std::uint64_t hole, std::uint64_t hole_bytes) {
    const std::uint64_t address = round_up(hole, alignment);
    return address + bytes <= hole + hole_bytes ? Fit{address, hole} : Fit{};
  };
  int looked = 0;
  for (auto hole = holes_by_size_.lower_bound({bytes, 0});
       hole != holes_by_size_.end() && looked < 8; ++hole, ++looked) {
    if (const Fit fit = fit_in(hole->second, hole->first); fit.address != 0) {
      return fit;
    }
  }
  const auto sure = holes_by_size_.lower_bound({bytes + alignment, 0});
  return sure == holes_by_size_.end() ? Fit{} : fit_in(sure->second, sure->first);
}

void WindowArena::add_hole(std::uint64_t address, std::uint64_t bytes) {
  const auto hole = holes_.emplace(address, bytes).first;
  try {
    holes_by_size_.emplace(bytes, address);
  } catch (...) {
    holes_.erase(hole);
    throw;
  }
}

void WindowArena::remove_hole(std::uint64_t address) {
  const auto hole = holes_.find(address);
  holes_by_size_.erase({hole->second, address});
  holes_.erase(hole);
}

}  // namespace tiermem

// Cuts windows from the smallest hole that fits; among equal ones, from the lowest address.
#include "tier/window_arena.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/results.hpp"
#include "os/memory_limits.hpp"

namespace tiermem {
namespace {

// Max bytes that are opened beyond a window, so that a series of small windows costs few calls.
constexpr std::uint64_t kMostAhead = std::uint64_t{16} << 20;
// A hole of this size is closed at once. Smaller ones are closed when at least this much of them is
// open.
constexpr std::uint64_t kLargeHole = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostIdle = std::uint64_t{64} << 20;
constexpr std::uint64_t kLeastClosed = std::uint64_t{64} << 10;
// The closed holes of one arena may use up to 1 / kShareOfMappings of the mappings of the process.
constexpr std::uint64_t kShareOfMappings = 32;

std::byte* pointer(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}

// No processor has more addresses: round_up() and sums of two of these never wrap.
constexpr std::uint64_t kMostAddresses = std::uint64_t{1} << 57;

// The addresses where ranges are placed, one after the other; an end of 0 means anywhere. The end
// is written before an arena exists.
constinit std::atomic<std::uint64_t> g_next_place{0};
constinit std::uint64_t g_end_of_places = 0;

// Skips addresses where other code has mapped memory.
Result<host::AddressRange> reserve_range(host::ReserveOptions options) {
  if (g_end_of_places == 0) {
    return host::reserve(options);
  }
  options.exactly = true;
  for (;;) {
    std::uint64_t place = g_next_place.load();
    if (options.bytes > g_end_of_places - place) {
      return fail(Code::no_capacity, "windows: no {} of their address space are left; free buffers",
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

// Changes the hole at `address` to begin at `begin` and have `bytes`. Allocates nothing.
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

// Neighbouring mappings that were written at different times do not merge again, because each has
// its own records of its content (struct anon_vma). They merge if both are parts of a mapping that
// was written before, so this function writes one page. It chooses the last page, which is used
// last, because the page table of small pages would split a huge page that moves there. Newer
// kernels free this page table together with the range.
void make_one(std::byte* range, std::uint64_t bytes) {
  std::byte* const last = range + bytes - host::kPage;
  if (host::open_range(last, host::kPage) == 0) {
    *last = std::byte{1};
    const std::uint64_t end = std::min(bytes, host::kHugePage);
    if (host::drop(range + bytes - end, end) != 0) {
      *last = std::byte{0};
    }
    best_effort(host::shut_range(last, host::kPage), "an open page of a hole is counted as shut");
  }
}

}  // namespace

void WindowArena::place_between(std::uint64_t begin, std::uint64_t bytes) {
  g_next_place = begin;
  g_end_of_places = begin + bytes;
}

WindowArena::WindowArena(const WindowArenaOptions& options)
    : options_(options),
      most_closed_((options.map_limit != 0 ? options.map_limit : host::map_limit()) /
                   kShareOfMappings) {}

Result<std::byte*> WindowArena::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  if (bytes == 0 || alignment < host::kPage || (alignment & (alignment - 1)) != 0 ||
      bytes > kMostAddresses || alignment > kMostAddresses) {
    return fail(Code::invalid_argument,
                "a window of {} bytes in extents of {}; accepted are 1 to 2^57 bytes, in extents "
                "of a power of two of at least 4096",
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
  const std::uint64_t end = fit.address + bytes;
  const std::uint64_t hole_end = fit.hole + holes_.at(fit.hole);
  const std::uint64_t before = fit.address - fit.hole;
  const std::uint64_t behind = hole_end - end;
  // Allocate first: if the allocation fails, the hole is unchanged.
  const auto window = windows_.emplace(fit.address, bytes).first;
  bool split = false;
  const auto undo = [&] {
    windows_.erase(window);
    if (split) {
      remove_hole(end);
    }
  };
  try {
    if (before > 0 && behind > 0) {
      add_hole(end, behind);
      split = true;
    }
    if (Status opened = open(fit.address, bytes, hole_end); !opened.ok()) {
      undo();
      return opened;
    }
  } catch (...) {
    undo();
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

void WindowArena::release(std::byte* window, const LentPages& lent) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(reinterpret_cast<std::uint64_t>(window));
  if (found == windows_.end()) {
    return;
  }
  const std::uint64_t bytes = found->second;
  windows_.erase(found);
  altered_.erase(reinterpret_cast<std::uint64_t>(window));
  window_bytes_ -= bytes;
  (void)lent.for_own(window, bytes, [this](std::byte* address, std::uint64_t n) {
    give_back(reinterpret_cast<std::uint64_t>(address), n);
    return 0;
  });
}

// The window stays among the windows, so its addresses are never part of a hole.
void WindowArena::retire(std::byte* window) {
  const std::uint64_t bytes = size_of(window);
  best_effort(host::shut_range(window, bytes), "no buffer has these addresses any more");
}

// Adds open addresses outside every window to a hole.
void WindowArena::give_back(std::uint64_t address, std::uint64_t bytes) {
  const Hole hole = merge_hole({address, address + bytes});
  if (options_.accessible) {
    idle_bytes_ += bytes;
    swept_ = std::min(swept_, idle_bytes_);
    close_around(address, bytes, hole);
  }
}

// Adds a new hole, merged with its neighbours.
WindowArena::Hole WindowArena::merge_hole(Hole hole) {
  std::uint64_t neighbour = 0;  // The hole that grows; 0: there is none.
  if (const auto after = holes_.find(hole.end); after != holes_.end()) {
    hole.end += after->second;
    neighbour = after->first;
  }
  if (auto before = holes_.lower_bound(hole.begin); before != holes_.begin()) {
    --before;
    if (before->first + before->second == hole.begin) {
      hole.begin = before->first;
      if (neighbour != 0) {
        remove_hole(neighbour);
      }
      neighbour = hole.begin;
    }
  }
  if (neighbour != 0) {
    change_hole(holes_, holes_by_size_, neighbour, hole.begin, hole.end - hole.begin);
  } else {
    add_hole(hole.begin, hole.end - hole.begin);
  }
  return hole;
}

// Makes the window's addresses accessible and part of core dumps. Opens a little more of the hole
// that it is cut from, if the kernel allows it.
Status WindowArena::open(std::uint64_t address, std::uint64_t bytes, std::uint64_t hole_end) {
  if (!options_.accessible) {
    return {};
  }
  const std::uint64_t end = address + bytes;
  auto part = closed_.lower_bound(address);
  if (part != closed_.begin() && std::prev(part)->first + std::prev(part)->second > address) {
    --part;
  }
  if (part == closed_.end() || part->first >= end) {
    idle_bytes_ -= bytes;
    return {};
  }
  const std::uint64_t ahead =
      std::min({round_up(window_bytes_ / 8, host::kPage), kMostAhead, hole_end - end});
  std::uint64_t opened = bytes + ahead;
  if (host::open_range(pointer(address), opened) != 0) {
    opened = bytes;
    if (host::open_range(pointer(address), opened) != 0) {
      const int error = errno;
      return host::refused(error, bytes, host::Wanted::memory, "a window");
    }
  }
  best_effort(host::advise(pointer(address), opened, host::Advise::do_dump),
              "a core dump lacks these bytes");
  while (part != closed_.end() && part->first < address + opened) {
    const auto [at, length] = *part;
    part = closed_.erase(part);
    if (at < address) {
      closed_.emplace(at, address - at);
    }
    if (at + length > address + opened) {
      part = closed_.emplace(address + opened, at + length - (address + opened)).first;
    }
    idle_bytes_ += std::min(at + length, address + opened) - std::max(at, address);
  }
  idle_bytes_ -= bytes;
  return {};
}

// Closes the open part of the hole around the returned addresses, if it is large. When the open
// holes are larger than the windows, closes all of them.
void WindowArena::close_around(std::uint64_t address, std::uint64_t bytes, const Hole& hole) {
  const Hole gap = open_gap(address, address + bytes, hole);
  if (gap.end - gap.begin >= kLargeHole) {
    close(gap, hole);
  }
  if (idle_bytes_ > std::max({kMostIdle, window_bytes_, 2 * swept_})) {
    close_all();
    swept_ = idle_bytes_;
  }
}

// Returns the open part of the hole around the two addresses; everything between them is open.
WindowArena::Hole WindowArena::open_gap(std::uint64_t begin, std::uint64_t end,
                                        const Hole& hole) const {
  Hole gap = hole;
  const auto after = closed_.lower_bound(end);
  if (after != closed_.end() && after->first < hole.end) {
    gap.end = after->first;
  }
  if (after != closed_.begin()) {
    const auto before = std::prev(after);
    gap.begin = std::max(gap.begin, std::min(begin, before->first + before->second));
  }
  return gap;
}

bool WindowArena::close_at(const std::byte* address) {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const std::lock_guard lock(mutex_);
  auto found = holes_.upper_bound(at);
  if (!options_.accessible || found == holes_.begin()) {
    return false;
  }
  --found;
  const Hole hole{found->first, found->first + found->second};
  if (at >= hole.end) {
    return false;
  }
  const auto closed = closed_.upper_bound(at);
  if (closed != closed_.begin() && at < std::prev(closed)->first + std::prev(closed)->second) {
    return true;  // Another thread touched it at the same time.
  }
  const std::uint64_t idle = idle_bytes_;
  close(open_gap(at, at, hole), hole);
  return idle_bytes_ != idle;
}

void WindowArena::close_all() {
  Vector<std::pair<Hole, Hole>> gaps;  // Closing may remove a hole.
  for (const auto& [begin, bytes] : holes_) {
    const Hole hole{begin, begin + bytes};
    std::uint64_t from = hole.begin;
    auto part = closed_.lower_bound(hole.begin);
    for (; part != closed_.end() && part->first < hole.end; ++part) {
      gaps.emplace_back(Hole{from, part->first}, hole);
      from = part->first + part->second;
    }
    gaps.emplace_back(Hole{from, hole.end}, hole);
  }
  for (const auto& [gap, hole] : gaps) {
    if (gap.end - gap.begin >= kLeastClosed) {
      close(gap, hole);
    }
  }
}

// The gap is open, and is a part of the hole.
void WindowArena::close(const Hole& gap, const Hole& hole) {
  const bool joins = closed_.contains(gap.end) || gap.begin != hole.begin;
  if (!joins && closed_.size() >= most_closed_) {
    return;
  }
  const Shut shut_so = shut(gap.begin, gap.end - gap.begin);
  if (shut_so == Shut::open) {
    return;
  }
  idle_bytes_ -= gap.end - gap.begin;
  add_closed(gap.begin, gap.end - gap.begin);
  if (shut_so == Shut::unusable && holes_.contains(hole.begin)) {
    remove_hole(hole.begin);  // Its addresses are not reused.
  }
}

// If the kernel counts writable memory, it still counts memory that was writable before, so the
// mapping is replaced by a new one.
WindowArena::Shut WindowArena::shut(std::uint64_t address, std::uint64_t bytes) const {
  Shut result = Shut::closed;
  if (counts_commit_) {
    if (host::close_range(pointer(address), bytes) != 0) {
      return Shut::open;
    }
    result = dress(pointer(address), bytes).ok() ? Shut::closed : Shut::unusable;
  } else if (host::shut_range(pointer(address), bytes) != 0) {
    // A part of it may be shut. If it cannot be opened again, all of it counts as closed: open()
    // opens it before it becomes a window again.
    return host::open_range(pointer(address), bytes) == 0 ? Shut::open : Shut::closed;
  }
  best_effort(host::advise(pointer(address), bytes, host::Advise::dont_dump),
              "a core dump is larger");
  return result;
}

void WindowArena::add_closed(std::uint64_t address, std::uint64_t bytes) {
  auto after = closed_.lower_bound(address);
  if (after != closed_.end() && after->first == address + bytes) {
    bytes += after->second;
    after = closed_.erase(after);
  }
  if (after != closed_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  closed_.emplace(address, bytes);
}

int WindowArena::follow_fork(const LentPages& lent) {
  new (&mutex_) std::mutex;  // A thread that only looked something up may have held it.
  for (host::AddressRange& range : ranges_) {
    range.adopt();
    const int error =
        lent.for_own(range.data(), range.bytes(), [&](std::byte* at, std::uint64_t n) {
          return options_.registered_with == nullptr
                     ? 0
                     : options_.registered_with->register_missing(at, n, options_.watch);
        });
    if (error != 0) {
      return error;
    }
  }
  return 0;
}

void WindowArena::close(const LentPages& lent) {
  for (const host::AddressRange& range : ranges_) {
    (void)lent.for_own(range.data(), range.bytes(), [](std::byte* address, std::uint64_t bytes) {
      if (host::close_range(address, bytes) != 0) {
        must(host::shut_range(address, bytes));
      }
      return 0;
    });
  }
}

void WindowArena::leave_to_parent() {
  new (&mutex_) std::mutex;  // As in follow_fork().
  for (const host::AddressRange& range : ranges_) {
    host::close_again(range.data(), range.bytes());
  }
  ranges_.clear();
  holes_.clear();
  holes_by_size_.clear();
  altered_.clear();
  windows_.clear();
  closed_.clear();
  window_bytes_ = idle_bytes_ = swept_ = 0;
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

std::uint64_t WindowArena::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

// Ranges that happen to be neighbours may merge into one hole. A window across both is valid,
// because both are registered and of one kind, and neither is released before the end.
Status WindowArena::extend(std::uint64_t bytes) {
  // The program needs address space too: where it is limited, take a quarter of the rest at most,
  // unless a window needs more.
  const std::uint64_t left = host::address_space_left();
  const bool limited = left != std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t least =
      round_up(limited ? bytes : std::max(bytes, options_.least_bytes), host::kHugePage);
  std::uint64_t size =
      std::min(options_.reserve_bytes, left / 4) / host::kHugePage * host::kHugePage;
  size = std::max(size, least);
  ranges_.reserve(ranges_.size() + 1);  // A hole must never outlive its range.
  for (;;) {
    // If absent extents are closed anyway, the kernel dumps none of them, and all must be uniform.
    auto range =
        reserve_range({.bytes = size, .accessible = false, .dumped = !options_.accessible});
    if (range.ok()) {
      counts_commit_ = host::counts_commit();
      if (options_.accessible && !counts_commit_) {
        make_one(range->data(), size);
      }
      Status dressed = dress(range->data(), size);
      if (dressed.ok() && options_.trap != nullptr) {
        dressed = options_.trap->add(range->data(), size);
      }
      if (!dressed.ok()) {
        return dressed;
      }
      const auto begin = reinterpret_cast<std::uint64_t>(range->data());
      ranges_.push_back(std::move(*range));
      if (options_.accessible) {
        add_closed(begin, size);
      }
      merge_hole({begin, begin + size});
      return {};
    }
    if (size == least) {
      return std::move(range).status();
    }
    size = std::max(round_up(size / 2, host::kHugePage), least);
  }
}

Status WindowArena::dress(std::byte* address, std::uint64_t bytes) const {
  // Refused advice (a kernel without huge pages) costs only speed. Closed memory gets no advice, so
  // that an extent that is closed again equals its neighbours.
  if (options_.accessible) {
    best_effort(
        host::advise(address, bytes, options_.huge ? host::Advise::huge : host::Advise::no_huge),
        "the kernel's default decides");
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

// Open it last: a touch before the registration would see zeros.
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

std::uint64_t WindowArena::stretch(const std::byte* address, std::uint64_t bytes, bool& own) const {
  const std::lock_guard lock(mutex_);
  own = false;
  std::uint64_t least = bytes;
  for (const host::AddressRange& range : ranges_) {
    if (range.contains(address)) {
      own = true;
      return std::min(bytes, static_cast<std::uint64_t>(range.data() + range.bytes() - address));
    }
    if (range.data() > address) {
      least = std::min(least, static_cast<std::uint64_t>(range.data() - address));
    }
  }
  return least;
}

bool WindowArena::give_away(std::byte* address, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  const std::uint64_t end = begin + bytes;
  const std::lock_guard lock(mutex_);
  const auto behind = windows_.lower_bound(end);
  if (behind != windows_.begin() && std::prev(behind)->first + std::prev(behind)->second > begin) {
    return false;
  }
  for (;;) {
    auto hole = holes_.lower_bound(begin);
    if (hole != holes_.begin() && std::prev(hole)->first + std::prev(hole)->second > begin) {
      --hole;
    }
    if (hole == holes_.end() || hole->first >= end) {
      return true;
    }
    const auto [at, length] = *hole;
    if (at + length > end) {
      add_hole(end, at + length - end);
    }
    if (at < begin) {
      change_hole(holes_, holes_by_size_, at, at, begin - at);
    } else {
      remove_hole(at);
    }
  }
}

// Requires the mutex. 0: none.
std::uint64_t WindowArena::window_at(const std::byte* address) const {
  const auto number = reinterpret_cast<std::uint64_t>(address);
  const auto after = windows_.upper_bound(number);
  if (after == windows_.begin()) {
    return 0;
  }
  const auto& [begin, bytes] = *std::prev(after);
  return number < begin + bytes ? begin : 0;
}

void WindowArena::alter(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  if (const std::uint64_t window = window_at(address); window != 0) {
    altered_.insert(window);
  }
}

bool WindowArena::altered(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  return !altered_.empty() && altered_.contains(window_at(address));
}

bool WindowArena::contains(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const host::AddressRange& range) { return range.contains(address); });
}

WindowArena::Fit WindowArena::find(std::uint64_t bytes, std::uint64_t alignment) const {
  // Try a few holes that fit tightly, which may be misaligned, and then one with room for any
  // alignment.
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

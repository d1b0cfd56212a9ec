// The accounting of the DRAM tier: acquired frames, cached frames, and frames that are being
// returned to the kernel; and the faults that it receives. Work of hands is in dram_hands.cpp,
// probing in dram_probe.cpp.
#include "tier/dram.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

// More victims than this would make one call of the mover too long; the mover calls again.
constexpr std::size_t kVictimsAtOnce = 2048;

std::byte* page_of(std::byte* address) {
  return address - reinterpret_cast<std::uint64_t>(address) % host::kPage;
}

WindowArenaOptions arena_options(const DramOptions& options, const DramFacts& facts,
                                 const Userfault& userfault, Mechanism mechanism, bool huge,
                                 bool mapped, TouchTrap* trap = nullptr) {
  WindowArenaOptions result;
  result.reserve_bytes = options.window_reserve_bytes;
  result.least_bytes = std::min(result.least_bytes, options.window_reserve_bytes);
  result.huge = huge && facts.huge_pages;
  result.accessible = mechanism != Mechanism::remap;
  // A child without a userfaultfd would read absent bytes as zeros.
  result.inherited = !mapped || options.follow_forks;
  const bool registered = mechanism == Mechanism::uffd_move || mechanism == Mechanism::copy;
  result.registered_with = registered ? &userfault : nullptr;
  result.watch = mapped && !huge && facts.watches;  // Only small extents can be in parts.
  result.trap = trap;
  result.map_limit = options.map_limit;
  return result;
}

WindowArenaOptions read_only_options(const DramOptions& options, const DramFacts& facts,
                                     const Userfault& userfault, bool huge) {
  const Mechanism mechanism = huge ? facts.windows : facts.small_windows;
  WindowArenaOptions result = arena_options(options, facts, userfault, mechanism, huge, false);
  result.watch = options.watch && facts.userfault.watch && result.registered_with != nullptr;
  return result;
}

}  // namespace

DramTier::DramTier(const DramOptions& options, const DramFacts& facts, Userfault userfault,
                   std::unique_ptr<TouchTrap> trap)
    : Memory(static_cast<AddressSpace&>(*this)),
      options_(options),
      facts_(facts),
      userfault_(std::move(userfault)),
      trap_(std::move(trap)),
      stop_(keep_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      require_huge_(options.huge_pages == HugePages::require),
      poisoned_(userfault_, facts.mapped != Mechanism::uffd_move),
      mapper_(userfault_, options.map_limit != 0 ? options.map_limit : host::map_limit(), poisoned_,
              lent_, counters_),
      windows_{WindowArena(arena_options(options, facts, userfault_, facts.windows, true, false)),
               WindowArena(
                   arena_options(options, facts, userfault_, facts.small_windows, false, false))},
      mapped_{WindowArena(
                  arena_options(options, facts, userfault_, facts.mapped, true, true, trap_.get())),
              WindowArena(arena_options(options, facts, userfault_, facts.mapped, false, true,
                                        trap_.get()))},
      read_only_{WindowArena(read_only_options(options, facts, userfault_, true)),
                 WindowArena(read_only_options(options, facts, userfault_, false))},
      closed_(userfault_, options.map_limit != 0 ? options.map_limit : host::map_limit()) {
  books_.budget = options.budget;
}

DramTier::~DramTier() {
  if (stop_ >= 0) {
    close_kept(stop_);
  }
}

// The encoding of frame ids: two bits of pool, six of size, and the number of the frame in its
// pool.

FrameId DramTier::pack(Pool pool, unsigned log2, std::uint32_t index) {
  return {static_cast<std::uint64_t>(pool) << 62 | std::uint64_t{log2} << 56 | index};
}

DramTier::Parts DramTier::unpack(FrameId frame) {
  return {static_cast<Pool>(frame.value >> 62), static_cast<unsigned>(frame.value >> 56 & 63),
          static_cast<std::uint32_t>(frame.value)};
}

Mechanism DramTier::mechanism_of(Pool pool) const {
  switch (pool) {
    case Pool::movable:
      return facts_.windows;
    case Pool::small:
      return facts_.small_windows;
    case Pool::locked:
      break;
  }
  return Mechanism::in_place;
}

WindowArena* DramTier::arena_of(const std::byte* address) const {
  for (const WindowArena* arena : {&windows_.huge, &windows_.small, &mapped_.huge, &mapped_.small,
                                   &read_only_.huge, &read_only_.small}) {
    if (arena->contains(address)) {
      return const_cast<WindowArena*>(arena);
    }
  }
  return nullptr;
}

FramePool& DramTier::pool(Pool pool, unsigned log2) {
  std::unique_ptr<FramePool>& slot = pools_[static_cast<std::size_t>(pool)][log2];
  if (slot == nullptr) {
    HomeOptions homes;
    homes.huge = facts_.huge_pages && log2 >= kLog2Chunk;
    homes.inherited = pool == Pool::locked;
    homes.dumped = pool == Pool::locked;
    if (pool != Pool::locked) {
      homes.memory = mechanism_of(pool) != Mechanism::in_place;
      homes.registered_with = mechanism_of(pool) == Mechanism::uffd_move ? &userfault_ : nullptr;
    }
    slot = std::make_unique<FramePool>(std::uint64_t{1} << log2, homes);
  }
  return *slot;
}

FramePool& DramTier::pool(const Parts& parts) const {
  return *pools_[static_cast<std::size_t>(parts.pool)][parts.log2];
}

// [mover] Frames and accounting.

FrameId DramTier::acquire_frame(const FrameRequest& request) {
  if (!std::has_single_bit(request.bytes) || request.bytes < kSmallestExtent ||
      request.bytes > kLargestExtent) {
    return {};
  }
  const auto log2 = static_cast<unsigned>(std::bit_width(request.bytes) - 1);
  // Pages of a huge frame do not move one by one, and large numbers of small pages do not move
  // fast.
  if (request.pool != Pool::locked &&
      (request.pool == Pool::small) != (request.bytes < host::kHugePage)) {
    return {};
  }
  try {
    const std::uint32_t index = request.pool == Pool::locked && log2 < kLog2Chunk
                                    ? take_slab(log2, request.domain)
                                    : take(pool(request.pool, log2), request.domain);
    return index == kNoFrame ? FrameId{} : pack(request.pool, log2, index);
  } catch (const std::bad_alloc&) {  // The pool's own records could not be allocated: treat it as
                                     // having no frame.
    return {};
  }
}

std::uint32_t DramTier::take(FramePool& from, std::uint64_t domain) {
  const std::uint64_t bytes = from.bytes();
  // A cached frame does not change used(). It may still not be acquired if in_use alone would
  // exceed a lowered budget: a trim frees the cache first.
  if (from.coldest() != kNoFrame && books_.in_use + bytes <= books_.budget) {
    books_.cached -= bytes;
    books_.in_use += bytes;
    return from.take_cached(domain);
  }
  if (books_.used() + bytes > books_.budget) {
    return kNoFrame;
  }
  const std::uint32_t index = from.take_fresh(domain);
  if (index != kNoFrame) {
    books_.in_use += bytes;
  }
  return index;
}

std::uint32_t DramTier::take_slab(unsigned log2, std::uint64_t domain) {
  FramePool& chunks = pool(Pool::locked, kLog2Chunk);
  if (slabs_[log2] == nullptr) {
    slabs_[log2] = std::make_unique<SlabPool>(std::uint64_t{1} << log2, chunks);
  }
  SlabPool& slab = *slabs_[log2];
  const std::uint32_t index = slab.take(domain);
  if (index != kNoFrame) {
    return index;
  }
  const std::uint32_t chunk = take(chunks, domain);
  if (chunk == kNoFrame) {
    return kNoFrame;
  }
  try {
    slab.add(chunk);
  } catch (const std::bad_alloc&) {
    put_back(chunks, chunk);
    return kNoFrame;
  }
  return slab.take(domain);
}

void DramTier::return_frame(FrameId frame) {
  const Parts parts = unpack(frame);
  if (!is_slab(parts)) {
    put_back(pool(parts), parts.index);
    return;
  }
  const std::uint32_t chunk = slab(parts).give_back(parts.index);
  if (chunk != kNoFrame) {
    put_back(pool(Pool::locked, kLog2Chunk), chunk);
  }
}

void DramTier::put_back(FramePool& to, std::uint32_t index) {
  Frame& frame = to.frame(index);
  assert(frame.state == Frame::State::in_use && frame.at == nullptr);
  if (frame.in_parts) {
    release_parts(to, index);
  } else if (!frame.pages) {
    to.give_back(index);
    books_.in_use -= to.bytes();
  } else if (frame.referenced || books_.used() - leaving_bytes_ > books_.budget) {
    let_leave(to, index, to.bytes());
  } else {
    to.cache(index, ++clock_);
    books_.in_use -= to.bytes();
    books_.cached += to.bytes();
  }
}

void DramTier::let_leave(FramePool& from, std::uint32_t index, std::uint64_t bytes) {
  from.frame(index).state = Frame::State::leaving;
  leaving_.push_back({&from, index, false, false, bytes});
  leaving_bytes_ += bytes;
  books_.leaving += bytes;
}

void DramTier::mark_referenced(FrameId frame) {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    slab(parts).slot(parts.index).referenced = true;
  } else {
    pool(parts).frame(parts.index).referenced = true;
  }
}

bool DramTier::needs_populate(FrameId frame) const {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    const SlabSlot& slot = slab(parts).slot(parts.index);
    return !slab(parts).chunk(parts.index).pages.load() || slot.tag != slot.owner;
  }
  const FramePool& of = pool(parts);
  const Frame& held = of.frame(parts.index);
  return !of.homes().memory || !held.pages || held.tag != held.owner || held.split;
}

bool DramTier::charge_records(std::uint64_t bytes) {
  if (bytes > records_ && books_.used() + (bytes - records_) > books_.budget) {
    return false;
  }
  books_.in_use += bytes - records_;
  records_ = bytes;
  return true;
}

// Trimming: begin and finish on the mover, run on a hand.

std::uint64_t DramTier::begin_trim(std::uint64_t bytes) {
  if (!trimming_.empty()) {
    return 0;  // Only one trim at a time.
  }
  std::uint64_t chosen = 0;
  // Take all of them, up to the limit of one call: none of their content is needed.
  while (!leaving_.empty() && trimming_.size() < kVictimsAtOnce) {
    Victim& victim = leaving_.back();
    chosen += victim.bytes;
    leaving_bytes_ -= victim.bytes;
    books_.leaving -= std::exchange(victim.refused, false) ? 0 : victim.bytes;
    trimming_.push_back(victim);
    leaving_.pop_back();
  }
  add_victims(bytes, chosen);
  return chosen;
}

void DramTier::add_victims(std::uint64_t bytes, std::uint64_t& chosen) {
  while (chosen < bytes && trimming_.size() < kVictimsAtOnce) {
    FramePool* coldest = nullptr;
    std::uint64_t stamp = 0;
    for (const auto& sizes : pools_) {
      for (const std::unique_ptr<FramePool>& candidate : sizes) {
        if (candidate == nullptr || candidate->coldest() == kNoFrame) {
          continue;
        }
        const std::uint64_t its = candidate->frame(candidate->coldest()).stamp;
        if (coldest == nullptr || its < stamp) {
          coldest = candidate.get();
          stamp = its;
        }
      }
    }
    if (coldest == nullptr) {
      return;
    }
    trimming_.push_back({coldest, coldest->take_coldest(), true, false, coldest->bytes()});
    chosen += coldest->bytes();
  }
}

void DramTier::run_trim() {
  // Neighbours are merged into one range, and all ranges go in one call.
  Vector<Victim*> order;
  order.reserve(trimming_.size());
  for (Victim& victim : trimming_) {
    order.push_back(&victim);
  }
  const auto home = [](const Victim* victim) { return victim->pool->home(victim->index); };
  std::sort(order.begin(), order.end(),
            [&](const Victim* a, const Victim* b) { return home(a) < home(b); });
  Vector<host::Range> ranges;
  for (const Victim* victim : order) {
    unlock_pages(*victim->pool, victim->index);
    if (mend(*victim->pool, victim->index, victim->pool->frame(victim->index).in_parts)) {
      continue;  // Its pages are gone too.
    }
    const std::uint64_t bytes = victim->pool->bytes();
    if (!ranges.empty() && ranges.back().address + ranges.back().bytes == home(victim)) {
      ranges.back().bytes += bytes;
    } else {
      ranges.push_back({home(victim), bytes});
    }
  }
  if (host::drop(ranges) != 0) {
    for (Victim* victim : order) {
      victim->refused = host::drop(home(victim), victim->pool->bytes()) != 0;
    }
  }
}

void DramTier::finish_trim() {
  for (const Victim& victim : trimming_) {
    if (victim.refused) {
      // It is still charged, because its pages are still there. The next trim tries again.
      counters_.trims_refused += 1;
      // No other code counts on it before this.
      leaving_.push_back({victim.pool, victim.index, false, true, victim.bytes});
      leaving_bytes_ += victim.bytes;
      if (victim.was_cached) {
        books_.cached -= victim.bytes;
        books_.in_use += victim.bytes;
      }
      continue;
    }
    Frame& frame = victim.pool->frame(victim.index);
    frame.pages = false;
    frame.in_parts = false;
    frame.has = 0;
    victim.pool->give_back(victim.index);
    (victim.was_cached ? books_.cached : books_.in_use) -= victim.bytes;
    counters_.trims += 1;
    counters_.trimmed_bytes += victim.bytes;
  }
  trimming_.clear();
}

// Frames of parts. [mover]

std::uint64_t DramTier::charge_of(const FramePool& pool, const Frame& frame) {
  return frame.in_parts ? frame.charged * kSmallestExtent : pool.bytes();
}

bool DramTier::takes_parts(std::uint64_t extent_bytes) const {
  return is_registered(facts_.mapped) && extent_bytes > kSmallestExtent &&
         extent_bytes <= kMostParts * kSmallestExtent;
}

FrameId DramTier::acquire_parts(const FrameRequest& request, unsigned pages) {
  const std::uint64_t bytes = pages * kSmallestExtent;
  if (request.pool != Pool::small || !takes_parts(request.bytes) || bytes > request.bytes ||
      books_.used() + bytes > books_.budget) {
    return {};
  }
  const auto log2 = static_cast<unsigned>(std::bit_width(request.bytes) - 1);
  FramePool& from = pool(request.pool, log2);
  const std::uint32_t index = from.take_fresh(request.domain);
  if (index == kNoFrame) {
    return {};
  }
  Frame& frame = from.frame(index);
  frame.in_parts = true;
  frame.charged = pages;
  books_.in_use += bytes;
  return pack(request.pool, log2, index);
}

bool DramTier::charge_parts(FrameId id, unsigned pages) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  const std::uint64_t bytes = pages * kSmallestExtent;
  if (!frame.in_parts || charge_of(of, frame) + bytes > of.bytes() ||
      books_.used() + bytes > books_.budget) {
    return false;
  }
  frame.charged += pages;
  books_.in_use += bytes;
  return true;
}

void DramTier::discharge_parts(FrameId id, unsigned pages) {
  const Parts parts = unpack(id);
  Frame& frame = pool(parts).frame(parts.index);
  assert(frame.in_parts && frame.charged >= pages);
  frame.charged -= pages;
  books_.in_use -= pages * kSmallestExtent;
}

// Its pages go back to the kernel together with those of other frames.
void DramTier::release_parts(FramePool& to, std::uint32_t index) {
  Frame& frame = to.frame(index);
  const std::uint64_t bytes = charge_of(to, frame);
  if (frame.has != 0) {
    let_leave(to, index, bytes);
    return;
  }
  frame.in_parts = false;
  to.give_back(index);
  books_.in_use -= bytes;
}

// Faults.

bool DramTier::next_fault(int timeout_ms, Fault& fault) {
  std::array<pollfd, 2> waiting = {pollfd{stop_, POLLIN, 0}, pollfd{fault_fd(), POLLIN, 0}};
  for (;;) {
    const int ready = poll(waiting.data(), waiting.size(), timeout_ms);
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0 || waiting[0].revents != 0) {
      return false;
    }
    const int error = read_fault(fault);
    if (error == 0) {
      counters_.faults += 1;
      return true;
    }
    if (error != EAGAIN) {
      return false;
    }
  }
}

std::size_t DramTier::take_faults(std::span<Fault> faults) {
  std::size_t n = 0;
  if (trap_ != nullptr) {
    while (n < faults.size() && trap_->read_event(faults[n]) == 0) {
      ++n;
    }
  } else if (userfault_.read_events(faults, n) != 0) {
    n = 0;
  }
  counters_.faults += n;
  return n;
}

void DramTier::wake(std::byte* address) {
  if (trap_ != nullptr) {
    trap_->wake(page_of(address));
  } else {
    userfault_.wake(page_of(address), host::kPage);
  }
}

void DramTier::allow_writes(std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(watch_mutex_);
  counters_.watched_writes += 1;
  if (userfault_.allow_writes(address, bytes) != 0) {
    // The window no longer exists: the waiting thread finds that out.
    userfault_.wake(address, bytes);
  }
}

bool DramTier::is_read_only(const std::byte* address) const {
  return has_read_only_.load(std::memory_order_acquire) &&
         (read_only_.huge.contains(address) || read_only_.small.contains(address));
}

void DramTier::refuse_store(const Fault& fault, std::byte* extent, std::uint64_t bytes) {
  counters_.stores_refused += 1;
  if (closed_.close(extent, bytes) != 0 && fault.thread != 0) {
    // No mapping is left to close. The store still waits, and then receives the signal.
    best_effort(tgkill(getpid(), static_cast<pid_t>(fault.thread), SIGSEGV),
                "the thread has ended, and its store with it");
  }
}

bool DramTier::poison(std::byte* address) {
  std::byte* const page = page_of(address);
  const bool done = poisoned_.add(page, arena_of(page));
  counters_.poisoned += done ? 1 : 0;
  if (trap_ != nullptr) {
    trap_->wake(page);
  }
  return done;
}

void DramTier::clear_poison(std::byte* address, std::uint64_t bytes) {
  if (poisoned_.take(address, bytes)) {
    best_effort(host::drop(address, bytes), "a poisoned page that stays has no bytes to show");
  }
}

bool DramTier::lend_window(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr) {
    return true;
  }
  try {
    lent_.add(address, bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  arena->alter(address);
  poisoned_.take(address, bytes);
  return true;
}

int DramTier::take_back_window(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr) {
    return EINVAL;
  }
  const int error = arena->renew(address, bytes);
  lent_.remove(address, bytes);
  return error;
}

void DramTier::alter_window(const std::byte* address) {
  if (WindowArena* const arena = arena_of(address); arena != nullptr) {
    arena->alter(address);
  }
}

std::uint64_t DramTier::stretch(const std::byte* address, std::uint64_t bytes, bool& own) const {
  own = false;
  std::uint64_t least = bytes;
  for (const WindowArena* arena : {&windows_.huge, &windows_.small, &mapped_.huge, &mapped_.small,
                                   &read_only_.huge, &read_only_.small}) {
    bool in_this = false;
    const std::uint64_t alike = arena->stretch(address, bytes, in_this);
    if (in_this) {
      own = !lent_.contains(address);
      least = std::min(alike, lent_.stretch(address, alike));
      break;
    }
    least = std::min(least, alike);
  }
  return least;
}

bool DramTier::give_away(std::byte* address, std::uint64_t bytes) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr || !arena->give_away(address, bytes)) {
    return arena == nullptr;
  }
  lent_.add(address, bytes);
  return true;
}

bool DramTier::close_at(std::byte* address) {
  WindowArena* const arena = arena_of(address);
  if (arena == nullptr || !arena->close_at(address)) {
    return false;
  }
  wake(page_of(address));
  return true;
}

bool DramTier::altered_window(const std::byte* address) const {
  const WindowArena* const arena = arena_of(address);
  return arena != nullptr && arena->altered(address);
}

void DramTier::fill_hole(std::byte* address) {
  std::byte* const page = page_of(address);
  if (trap_ != nullptr) {
    trap_->wake(page);  // The kernel fills holes by itself.
  } else if (userfault_.zero(page, host::kPage) != 0) {
    userfault_.wake(page, host::kPage);  // A page has arrived.
  }
}

void DramTier::fill_holes(std::byte* address, std::uint64_t bytes) {
  if (trap_ != nullptr || userfault_.zero(address, bytes) == 0) {
    return;
  }
  for (std::uint64_t done = 0; done < bytes; done += host::kPage) {  // Some pages are present.
    fill_hole(address + done);
  }
}

void DramTier::stop_faults() {
  const std::uint64_t one = 1;
  while (write(stop_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// Fork.

Status DramTier::follow_fork() {
  const auto refused = [](const char* what, int error) {
    return fail_native(Code::unavailable, error, "{}: {}", what, std::strerror(error));
  };
  userfault_ = Userfault::open(options_.userfault);  // The parent's userfaultfd is closed here.
  followed_ = forks_.load();
  if (!userfault_.ok()) {
    return fail(Code::unavailable, "no userfaultfd: {}", userfault_.facts().reason);
  }
  for (WindowArena* arena : {&mapped_.huge, &mapped_.small}) {
    if (const int error = arena->follow_fork(lent_); error != 0) {
      return refused("registering windows again", error);
    }
  }
  for (Nursery* nursery : {huge_nursery_.get(), small_nursery_.get()}) {
    if (Status again = nursery == nullptr ? Status() : nursery->follow_fork(); !again.ok()) {
      return again;
    }
  }
  mapper_.follow_fork();
  for (const auto& sizes : pools_) {
    for (const std::unique_ptr<FramePool>& each : sizes) {
      if (Status again = each == nullptr ? Status() : each->follow_fork(); !again.ok()) {
        return again;
      }
    }
  }
  close_kept(stop_);
  stop_ = keep_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return stop_ >= 0 ? Status() : refused("eventfd", errno);
}

void DramTier::forget_free_pages() {
  while (begin_trim(~std::uint64_t{0}) != 0) {
    finish_trim();
  }
}

void DramTier::close_windows() {
  mapped_.huge.close(lent_);
  mapped_.small.close(lent_);
}

bool DramTier::test_consistent() const {
  std::uint64_t in_use = records_;
  std::uint64_t cached = 0;
  for (const auto& sizes : pools_) {
    for (const std::unique_ptr<FramePool>& each : sizes) {
      if (each == nullptr) {
        continue;
      }
      if (!each->test_consistent()) {
        return false;
      }
      in_use += each->test_bytes(Frame::State::in_use);
      in_use += each->test_bytes(Frame::State::leaving);
      cached += each->test_bytes(Frame::State::cached);
    }
  }
  // Victims of a trim in progress have left the cache, but are still in its accounting.
  for (const Victim& victim : trimming_) {
    if (victim.was_cached) {
      in_use -= victim.pool->bytes();
      cached += victim.pool->bytes();
    }
  }
  return in_use == books_.in_use && cached == books_.cached;
}

}  // namespace tiermem

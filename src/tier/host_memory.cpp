// The accounting of a host memory: acquired frames, cached frames, and frames that are being
// returned to the kernel. Its pages are in host_memory_workers.cpp.
#include "tier/host_memory.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <utility>

#include "tier/address_space.hpp"

namespace tiermem {
namespace {

// More victims than this would make one call of the mover too long; the mover calls again.
constexpr std::size_t kTrimmedAtOnce = 2048;

}  // namespace

HostMemory::HostMemory(AddressSpace& space, unsigned number, const HostMemoryOptions& options,
                       HostPages pages, HomePages& homes, LiveHostCounters& counters)
    : Memory(space, number),
      place_(options.place),
      node_(pages.node),
      file_(std::move(pages.file)),
      homes_(homes),
      counters_(counters) {
  set_budget(options.budget);
}

// The encoding of frame ids: two bits of pool, six of size, three of the memory (FrameId), and the
// number of the frame in its pool.

FrameId HostMemory::pack(Pool pool, unsigned log2, std::uint32_t index) const {
  return FrameId::in_memory(
      number(), static_cast<std::uint64_t>(pool) << 62 | std::uint64_t{log2} << 56 | index);
}

HostMemory::Parts HostMemory::unpack(FrameId frame) {
  return {static_cast<Pool>(frame.value >> 62), static_cast<unsigned>(frame.value >> 56 & 63),
          static_cast<std::uint32_t>(frame.value)};
}

FramePool& HostMemory::pool(Pool pool, unsigned log2) {
  std::unique_ptr<FramePool>& slot = pools_[static_cast<std::size_t>(pool)][log2];
  if (slot == nullptr) {
    const std::uint64_t bytes = std::uint64_t{1} << log2;
    slot = std::make_unique<FramePool>(bytes, file_ != nullptr
                                                  ? HomeOptions{.on_file = true}
                                                  : homes_.options_of(pool, bytes, node()));
  }
  return *slot;
}

FramePool& HostMemory::pool(const Parts& parts) const {
  return *pools_[static_cast<std::size_t>(parts.pool)][parts.log2];
}

std::byte* HostMemory::home(FrameId frame) const {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    return slab(parts).home(parts.index);
  }
  const FramePool& of = pool(parts);
  return of.homes().memory ? of.home(parts.index) : nullptr;
}

std::uint64_t HostMemory::bytes_of(FrameId frame) const {
  const Parts parts = unpack(frame);
  return is_slab(parts) ? slab(parts).frame_bytes() : pool(parts).bytes();
}

HostFrame HostMemory::frame(FrameId frame) const {
  const Parts parts = unpack(frame);
  assert(!is_slab(parts));
  const FramePool& of = pool(parts);
  return {of, parts.index, of.frame(parts.index)};
}

// [mover] Frames and accounting.

FrameId HostMemory::acquire_frame(const FrameRequest& request) {
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
  if (!takes(request)) {
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

std::uint32_t HostMemory::take(FramePool& from, std::uint64_t domain) {
  const std::uint64_t bytes = from.bytes();
  // A cached frame does not change used(). It may still not be acquired if in_use alone would
  // exceed a lowered budget: a trim frees the cache first.
  if (from.coldest() != kNoFrame && usage_.in_use + bytes <= usage_.budget) {
    usage_.cached -= bytes;
    usage_.in_use += bytes;
    return from.take_cached(domain);
  }
  if (usage_.used() + bytes > usage_.budget) {
    return kNoFrame;
  }
  const std::uint32_t index = from.take_fresh(domain);
  if (index != kNoFrame) {
    usage_.in_use += bytes;
  }
  return index;
}

std::uint32_t HostMemory::take_slab(unsigned log2, std::uint64_t domain) {
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

void HostMemory::return_frame(FrameId frame) {
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

void HostMemory::put_back(FramePool& to, std::uint32_t index) {
  Frame& frame = to.frame(index);
  assert(frame.state == Frame::State::in_use && frame.at == nullptr);
  if (frame.in_parts) {
    release_parts(to, index);
  } else if (!frame.pages) {
    to.give_back(index);
    usage_.in_use -= to.bytes();
  } else if (frame.referenced || usage_.used() - leaving_bytes_ > usage_.budget) {
    let_leave(to, index, to.bytes());
  } else {
    to.cache(index, ++clock_);
    usage_.in_use -= to.bytes();
    usage_.cached += to.bytes();
  }
}

void HostMemory::let_leave(FramePool& from, std::uint32_t index, std::uint64_t bytes) {
  from.frame(index).state = Frame::State::leaving;
  leaving_.push_back({&from, index, false, false, bytes});
  leaving_bytes_ += bytes;
  usage_.leaving += bytes;
}

void HostMemory::mark_referenced(FrameId frame) {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    slab(parts).slot(parts.index).referenced = true;
  } else {
    pool(parts).frame(parts.index).referenced = true;
  }
}

bool HostMemory::needs_populate(FrameId frame) const {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    const SlabSlot& slot = slab(parts).slot(parts.index);
    return !slab(parts).chunk(parts.index).pages.load() || slot.tag != slot.owner;
  }
  const FramePool& of = pool(parts);
  const Frame& held = of.frame(parts.index);
  return !of.homes().memory || !held.pages || held.tag != held.owner || held.split;
}

bool HostMemory::charge_records(std::uint64_t bytes) {
  if (bytes > records_ && usage_.used() + (bytes - records_) > usage_.budget) {
    return false;
  }
  usage_.in_use += bytes - records_;
  records_ = bytes;
  return true;
}

// Trimming: begin and finish on the mover, run on a worker.

std::uint64_t HostMemory::begin_trim(std::uint64_t bytes) {
  if (!trimming_.empty()) {
    return 0;  // Only one trim at a time.
  }
  std::uint64_t chosen = 0;
  // Take all of them, up to the limit of one call: none of their content is needed.
  while (!leaving_.empty() && trimming_.size() < kTrimmedAtOnce) {
    Victim& victim = leaving_.back();
    chosen += victim.bytes;
    leaving_bytes_ -= victim.bytes;
    usage_.leaving -= std::exchange(victim.refused, false) ? 0 : victim.bytes;
    trimming_.push_back(victim);
    leaving_.pop_back();
  }
  add_victims(bytes, chosen);
  return chosen;
}

void HostMemory::add_victims(std::uint64_t bytes, std::uint64_t& chosen) {
  while (chosen < bytes && trimming_.size() < kTrimmedAtOnce) {
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

void HostMemory::run_trim() {
  // Neighbours are merged into one range, and all ranges go in one call.
  Vector<Victim*> order;
  order.reserve(trimming_.size());
  for (Victim& victim : trimming_) {
    order.push_back(&victim);
  }
  if (file_ != nullptr) {
    for (Victim* const victim : order) {
      std::byte* const home = victim->pool->home(victim->index);
      victim->refused = file_->release(home, victim->pool->bytes()) != 0;
    }
    return;
  }
  drop_victims(order);
}

void HostMemory::drop_victims(Vector<Victim*>& order) {
  const auto home = [](const Victim* victim) { return victim->pool->home(victim->index); };
  std::sort(order.begin(), order.end(),
            [&](const Victim* a, const Victim* b) { return home(a) < home(b); });
  Vector<host::Range> ranges;
  for (const Victim* victim : order) {
    unlock_pages(*victim->pool, victim->index);
    if (homes_.mend(*victim->pool, victim->index, victim->pool->frame(victim->index).in_parts)) {
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

void HostMemory::finish_trim() {
  for (const Victim& victim : trimming_) {
    if (victim.refused) {
      // It is still charged, because its pages are still there. The next trim tries again.
      counters_.trims_refused += 1;
      // No other code counts on it before this.
      leaving_.push_back({victim.pool, victim.index, false, true, victim.bytes});
      leaving_bytes_ += victim.bytes;
      if (victim.was_cached) {
        usage_.cached -= victim.bytes;
        usage_.in_use += victim.bytes;
      }
      continue;
    }
    Frame& frame = victim.pool->frame(victim.index);
    frame.pages = false;
    frame.in_parts = false;
    frame.has = 0;
    victim.pool->give_back(victim.index);
    (victim.was_cached ? usage_.cached : usage_.in_use) -= victim.bytes;
    counters_.trims += 1;
    counters_.trimmed_bytes += victim.bytes;
  }
  trimming_.clear();
}

// Frames of parts. [mover]

std::uint64_t HostMemory::charge_of(const FramePool& pool, const Frame& frame) {
  return frame.in_parts ? frame.charged * kSmallestExtent : pool.bytes();
}

FrameId HostMemory::acquire_parts(const FrameRequest& request, unsigned pages) {
  const std::uint64_t bytes = pages * kSmallestExtent;
  if (request.pool != Pool::small || !takes(request) ||
      !space().takes_parts(request.bytes, false) || bytes > request.bytes ||
      usage_.used() + bytes > usage_.budget) {
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
  usage_.in_use += bytes;
  return pack(request.pool, log2, index);
}

bool HostMemory::charge_parts(FrameId id, unsigned pages) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  const std::uint64_t bytes = pages * kSmallestExtent;
  if (!frame.in_parts || charge_of(of, frame) + bytes > of.bytes() ||
      usage_.used() + bytes > usage_.budget) {
    return false;
  }
  frame.charged += pages;
  usage_.in_use += bytes;
  return true;
}

void HostMemory::discharge_parts(FrameId id, unsigned pages) {
  const Parts parts = unpack(id);
  Frame& frame = pool(parts).frame(parts.index);
  assert(frame.in_parts && frame.charged >= pages);
  frame.charged -= pages;
  usage_.in_use -= pages * kSmallestExtent;
}

FrameId HostMemory::split_parts(FrameId id, unsigned pages) {
  const Parts parts = unpack(id);
  FramePool& of = pool(parts);
  const std::uint32_t index = of.take_fresh(of.frame(parts.index).owner);
  if (index == kNoFrame) {
    return {};
  }
  Frame& split = of.frame(index);
  Frame& frame = of.frame(parts.index);
  assert(frame.in_parts && frame.charged > pages);
  split.in_parts = true;
  split.charged = pages;
  frame.charged -= pages;
  return pack(parts.pool, parts.log2, index);
}

void HostMemory::join_parts(FrameId split, FrameId id) {
  const Parts from = unpack(split);
  const Parts to = unpack(id);
  Frame& given = pool(from).frame(from.index);
  assert(given.in_parts && given.has == 0);
  pool(to).frame(to.index).charged += given.charged;
  given.charged = 0;
  return_frame(split);
}

// Its pages go back to the kernel together with those of other frames.
void HostMemory::release_parts(FramePool& to, std::uint32_t index) {
  Frame& frame = to.frame(index);
  const std::uint64_t bytes = charge_of(to, frame);
  if (frame.has != 0) {
    let_leave(to, index, bytes);
    return;
  }
  frame.in_parts = false;
  to.give_back(index);
  usage_.in_use -= bytes;
}

// Fork.

Status HostMemory::follow_fork() {
  Status again;
  each_pool([&](FramePool& pool) {
    if (again.ok()) {
      again = pool.follow_fork();
    }
  });
  return again;
}

void HostMemory::close_homes() {
  each_pool([](FramePool& pool) { pool.close_homes(); });
}

void HostMemory::forget_free_pages() {
  while (begin_trim(~std::uint64_t{0}) != 0) {
    finish_trim();
  }
}

bool HostMemory::test_consistent() const {
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
  return in_use == usage_.in_use && cached == usage_.cached;
}

}  // namespace tiermem

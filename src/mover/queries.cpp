#include "mover/queries.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tiermem {

void Queries::advise(Request& request) {
  // These are flags of the record, and hold for an extent that is absent.
  const bool lasts = request.advice == Advice::streamed || request.advice == Advice::keep ||
                     request.advice == Advice::preferred;
  const MemoryLedger* const memory = host_memory_at(request.tier);
  for (const Span& span : request.spans) {
    // An extent that has not begun is in no order. Advice about the order passes it by, so that
    // such advice for a reservation of terabytes needs no memory for records.
    const auto each = [&](const auto& visit) {
      if (!lasts) {
        directory_.each_begun(span.first, span.first + span.count, visit);
        return;
      }
      for (std::uint32_t i = 0; i < span.count; ++i) {
        visit(span.first + i);
      }
    };
    // Advice is for this life only: booked first, since a free that found it otherwise has changed
    // the generation.
    each([&](ExtentRef ref) { (void)directory_.word(span.space, ref).note_known_elsewhere(); });
    if (span.stale()) {
      continue;
    }
    each([&](ExtentRef ref) {
      directory_.begin(span, ref);
      if (request.advice == Advice::preferred) {
        prefer(ref, memory);
        return;
      }
      if (!room_.find_record(span.space, ref)) {
        return;  // The advice is lost.
      }
      if (request.advice == Advice::will_need) {
        room_.wish_climb(ref);
      }
      for (MemoryLedger* const receiver : memories_.in(span.space)) {
        Copies::recency_for(*receiver, ref).advised(ref, request.advice, request.value);
      }
    });
  }
}

// Returns the host's memory at the place, or null: another place prefers none of them.
const MemoryLedger* Queries::host_memory_at(Place place) const {
  for (const MemoryLedger* const memory : memories_.in(kHost)) {
    if (memory->tier->place() == place) {
      return memory;
    }
  }
  return nullptr;
}

// The extent goes to the memory in the background. Without a memory it is as an extent that prefers
// the first one, and is left where it is.
void Queries::prefer(ExtentRef ref, const MemoryLedger* memory) {
  Extent& extent = directory_.at(ref);
  const unsigned rank = memory != nullptr ? memory->rank() : 0;
  if (extent.preferred != rank) {
    extent.preferred = rank & 0xf;
    extent.uses = 0;
  }
  if (memory != nullptr) {
    room_.wish_climb(ref);
  }
}

void Queries::fill_info(std::uint32_t index, BufferInfo& info) const {
  const BufferRecord& record = residency_.buffers.at(index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  info.bytes = record.bytes.load(std::memory_order_relaxed);
  info.extent_bytes = std::uint64_t{1} << record.extent_shift.load(std::memory_order_relaxed);
  info.extents = record.extents.load(std::memory_order_relaxed);
  set_text(info.label, record.label.get().view());
  std::uint64_t begun = 0;
  directory_.each_begun(
      first, first + static_cast<std::uint32_t>(info.extents), [&](ExtentRef ref) {
        ++begun;
        const ExtentBits bits = directory_.bits(kHost, ref);
        if (bits.readable()) {
          info.resident += info.extent_bytes;
          info.dirty += bits.dirty() ? info.extent_bytes : 0;
          info.pinned += bits.pinned() ? info.extent_bytes : 0;
        } else if (directory_.at(ref).parts != 0) {
          info.resident += directory_.resident_bytes(ref);
          info.dirty += directory_.resident_bytes(ref);
          info.in_slots += info.extent_bytes - directory_.resident_bytes(ref);
          return;
        }
        // `in_slots` does not count adopted files.
        const SlotCopy copy = directory_.slot_copy(ref);
        info.in_slots += copy.current() && !copy.in_file() ? info.extent_bytes : 0;
        info.zero +=
            bits.phase() == Phase::zero || bits.phase() == Phase::vacant ? info.extent_bytes : 0;
        info.lost += bits.phase() == Phase::lost ? info.extent_bytes : 0;
      });
  info.zero += !record.adopted() ? (info.extents - begun) * info.extent_bytes : 0;
}

// Returns the number of extents that it looked at.
std::uint64_t Queries::add_tiers(const BufferRecord& record, Census::Row& row) const {
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
  std::uint64_t seen = 0;
  directory_.each_begun(first, end, [&](ExtentRef ref) {
    ++seen;
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      const bool parts = space == kHost && directory_.at(ref).parts != 0;
      if (directory_.readable(ref, space) || parts) {
        const FrameId frame = directory_.frame(space, ref);
        row.tiers[memories_.of(space, frame).index] += directory_.resident_bytes(ref);
      }
    }
    const SlotCopy copy = directory_.slot_copy(ref);
    if (!copy.current()) {
      return;
    }
    unsigned position = memories_.count();
    for (const SlotTiers::Entry& tier : engine_.slots()) {
      if (tier.number == copy.tier) {
        row.tiers[position] += row.info.extent_bytes;
      }
      ++position;
    }
  });
  return seen;
}

void Queries::fill_census(Census& census) const {
  constexpr std::uint64_t kMostSeen = 4096;  // About 200 us of a step.
  std::uint64_t seen = 0;
  for (;
       census.next < census.end && census.rows.size() < census.rows.capacity() && seen < kMostSeen;
       ++census.next, ++seen) {
    const BufferRecord& record = residency_.buffers.at(census.next);
    if ((record.generation.load(std::memory_order_acquire) & 1) == 0) {
      continue;  // Not live.
    }
    Census::Row& row = census.rows.emplace_back();
    fill_info(census.next, row.info);
    seen += add_tiers(record, row);
  }
}

void Queries::fill_stats(Stats& stats) const {
  journal_.fill(stats);
  stats.metadata_bytes = residency_.extents.metadata_bytes();
  const auto add = [&stats](const TierStats& tier) { stats.tiers[stats.tier_count++] = tier; };
  for (const MemoryLedger& memory : memories_) {
    const unsigned space = memory.space;
    const FrameUsage usage = memory.tier->usage();
    const std::uint64_t pinned = refusals_.pinned_bytes(memory);
    const TierStats& bytes = journal_.bytes_of(memory);
    add({memory.tier->place(), usage.budget, usage.used(), pinned, bytes.bytes_in,
         bytes.bytes_out});
    if (space == kHost && memory.rank() != 0) {
      continue;  // Only `tiers` has the further memories of the host.
    }
    (space == kHost ? stats.dram_budget : stats.gpu_budget) += usage.budget;
    (space == kHost ? stats.dram_used : stats.gpu_used) += usage.used();
    (space == kHost ? stats.dram_pinned : stats.gpu_pinned) += pinned;
  }
  for (const SlotTiers::Entry& slots : engine_.slots()) {
    const SlotUsage usage = slots.takes_writes() ? slots.tier->usage() : SlotUsage{};
    const TierStats& bytes = journal_.bytes_of(slots);
    add({slots.tier->place(), usage.budget, usage.in_use, 0, bytes.bytes_in, bytes.bytes_out});
    if (!slots.tier->compresses()) {
      const std::uint64_t more = ~std::uint64_t{0} - stats.block_budget;
      stats.block_budget += std::min(usage.budget, more);
      stats.block_used += usage.in_use;
    }
    stats.degraded_devices += slots.takes_writes() ? slots.tier->degraded() : 0;
  }
  const Spares::Count spares = residency_.spares.count();
  const std::uint64_t making = stock_.under_way();
  const std::uint64_t live = residency_.buffers.live(), extents = residency_.buffers.live_extents();
  stats.buffers = live - std::min(live, spares.buffers + making);
  stats.extents = extents - std::min(extents, spares.extents + making);
}

}  // namespace tiermem

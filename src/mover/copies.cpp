#include "mover/copies.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace tiermem {

// Touches of a mapped extent are seen only when they miss, and only the host has a window.
void Copies::note_came(const Directory& directory, ExtentRef ref, MemoryLedger& memory) {
  const bool hidden = memory.space == kHost && directory.touchable(ref);
  recency_for(memory, ref)
      .inserted(ref, directory.bytes_of(ref),
                hidden ? Recency::References::hidden : Recency::References::seen);
}

void Copies::finish_evict(ExtentRef ref, unsigned space, FrameId frame, std::int64_t begun_ns) {
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  MemoryLedger& memory = memories_.of(space, frame);
  const std::uint64_t held = directory_.resident_bytes(ref);
  journal_.note_dropped(ref, memory, held, begun_ns);
  if (extent.parts != 0) {
    give_parts(frame, space, std::exchange(extent.parts, 0));
    bounce_.partial_ended();
  } else {
    memory.give_frame(frame, held);
  }
  memory.recency.removed(ref, true);
  note_left(extent, memory);
  const bool dropped = word.load().dirty() && directory_.droppable(ref) &&
                       directory_.readable_elsewhere(ref, space) == kNoSpace;
  journal_.count(&Stats::dropped, dropped ? held : 0);
  journal_.count(&Stats::evicted_clean, word.load().dirty() ? 0 : held);
  if (space == kHost && extent.prefetched) {
    journal_.count(&Stats::prefetched_unused,
                   word.load().referenced() ? 0 : directory_.bytes_in_copy(ref));
    prefetch_used(ref);
  }
  directory_.frame(space, ref) = {};
  word.clear_dirty();
  word.clear_at_home();
  word.set_phase(Phase::none);
  settle(ref);
  if (dropped) {
    directory_.word(kHost, ref).set_phase(Phase::lost);
  }
  note_in_slot(ref);
}

void Copies::finish_part(ExtentRef ref, PageMask pages, FrameId split, std::int64_t begun_ns) {
  const FrameId frame = directory_.frame(kHost, ref);
  MemoryLedger& memory = memories_.of(kHost, frame);
  const std::uint64_t bytes = bytes_of_pages(pages);
  journal_.note_dropped(ref, memory, bytes, begun_ns);
  if (split.valid()) {
    give_parts(split, kHost, pages);
  } else {
    memory.tier->discharge_parts(frame, static_cast<unsigned>(std::popcount(pages)));
    memory.returned += bytes;
  }
  directory_.at(ref).parts &= ~pages;
  memory.recency.passed(ref, directory_.resident_bytes(ref));
  journal_.count(&Stats::evicted_clean, bytes);
  directory_.word(kHost, ref).set_phase(Phase::none);
}

// After a copy has gone: the last one of several becomes exclusive, and an extent without any copy
// that was never written down is zero again.
void Copies::settle(ExtentRef ref) {
  unsigned copies = 0;
  unsigned last = 0;
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (directory_.readable(ref, space)) {
      ++copies;
      last = space;
    }
  }
  ExtentWord& host = directory_.word(kHost, ref);
  if (copies == 1 && directory_.word(last, ref).load().phase() == Phase::shared) {
    directory_.word(last, ref).set_phase(Phase::exclusive);
  } else if (copies == 0 && !directory_.has_slot_copy(ref) && host.load().phase() == Phase::none) {
    host.set_phase(Phase::zero);
  }
}

void Copies::lose(ExtentRef ref, const MemoryLedger& memory) {
  directory_.word(kHost, ref).set_phase(Phase::lost);
  directory_.at(ref).lost_with = memory.index & 0xf;
  ++losses_[directory_.at(ref).buffer];
}

void Copies::prefetch_used(ExtentRef ref) {
  Extent& extent = directory_.at(ref);
  if (extent.prefetched) {
    extent.prefetched = false;
    memories_.of(kHost, directory_.frame(kHost, ref)).unused_prefetched -= directory_.bytes_of(ref);
  }
}

void Copies::drop_slot(ExtentRef ref) {
  if (directory_.owns_slot(ref)) {
    SlotTiers::Entry& tier = slots_.of(directory_.at(ref).copy());
    give_up_slot(ref);
    // The bytes of a private file's extent are not those of the file, which is its copy again.
    if (directory_.readable(ref, kHost)) {
      memories_.space(kHost).end_watch(directory_.frame(kHost, ref));
    }
    room_in_slots(tier);
  } else {
    directory_.drop_copy(ref);
  }
  directory_.at(ref).zeros = 0;
}

void Copies::give_up_slot(ExtentRef ref) {
  const SlotCopy& copy = directory_.at(ref).copy();
  assert(copy.owned());
  drop_replica(ref);
  slots_.of(copy).ledger.give_up(copy.slot, copy.stamp);
  directory_.drop_copy(ref);
}

void Copies::move_slot(ExtentRef from, ExtentRef to) {
  SlotTiers::Entry& tier = slots_.of(directory_.at(from).copy());
  tier.replicated.remove(from);
  tier.below_memory.remove(from);
  directory_.move_slot(from, to);
}

void Copies::room_in_slots(SlotTiers::Entry& tier) {
  if (tier.ledger.slots_came()) {
    stuck_.slots_came(now_);
  }
}

void Copies::give_parts(FrameId frame, unsigned space, PageMask pages) {
  MemoryLedger& memory = memories_.of(space, frame);
  memory.tier->return_frame(frame);
  memory.returned += bytes_of_pages(pages);
}

// The tier is full: a slot of bytes that are in memory goes. These are written again when they
// leave. False: there is none.
bool Copies::next_slot_gives_way(SlotTiers::Entry& tier) {
  if (next_replica_gives_way(tier)) {
    return true;
  }
  if (!tier.ledger.looks_for_slots(now_)) {
    return false;
  }
  const ExtentRef extents = residency_.buffers.used_extents();
  for (ExtentRef looked = 0; looked < extents; ++looked) {
    const ExtentRef ref = tier.ledger.next_to_give_way(extents);
    if (!gives_way(ref, tier)) {
      continue;
    }
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      if (directory_.readable(ref, space)) {
        directory_.word(space, ref).set_dirty();  // Before it is so.
      }
    }
    drop_slot(ref);
    return true;
  }
  tier.ledger.none_gives_way(now_, extents);
  return false;
}

// Its slot has nothing that the host's memory does not have, and can be given to another extent.
// Bytes that can be made again keep theirs: without it they would be dropped.
bool Copies::gives_way(ExtentRef ref, const SlotTiers::Entry& tier) const {
  const Extent& extent = directory_.at(ref);
  return extent.copy().owned() && extent.copy().tier == tier.number && extent.transfer == 0 &&
         extent.parts == 0 && !extent.charged && !tier.ledger.is_shared(extent.copy().stamp) &&
         !directory_.droppable(ref) && directory_.readable(ref, kHost);
}

void Copies::note_in_slot(ExtentRef ref) {
  if (!is_below_memory(ref)) {
    return;
  }
  if (directory_.droppable(ref)) {
    (void)order_.add(ref);  // Without memory for a record it is never dropped.
  }
  SlotTiers::Entry& tier = slots_.of(directory_.at(ref).copy());
  if (!slots_.after(tier).empty()) {
    // Without memory for a record it stays where it is.
    (void)(directory_.has_replica(ref) ? tier.replicated : tier.below_memory).add(ref);
  }
}

// It owns a slot, and no memory has any of its bytes.
bool Copies::is_below_memory(ExtentRef ref) const {
  return directory_.owns_slot(ref) && directory_.at(ref).parts == 0 &&
         directory_.word(kHost, ref).load().phase() == Phase::none &&
         directory_.readable_elsewhere(ref, kHost) == kNoSpace;
}

bool Copies::is_droppable_from_slot(ExtentRef ref) const {
  return directory_.droppable(ref) && is_below_memory(ref);
}

SlotTiers::Entry* Copies::below(const SlotTiers::Entry& tier) const {
  for (SlotTiers::Entry* const next : slots_.after(tier)) {
    if (next->ledger.can_write(now_, false)) {
      return next;
    }
  }
  return nullptr;
}

// Extents that have changed since they joined the order leave it here. Each joined it with an
// evict, so the looks at them are paid for. Others with transfers and holds are few.
ExtentRef Copies::next_to_destage(SlotTiers::Entry& tier) {
  constexpr unsigned kLooks = 64;
  ExtentRef ref = tier.below_memory.first();
  for (unsigned look = 0; look < kLooks && ref != kNoLink; ++look) {
    const ExtentRef next = tier.below_memory.after(ref);
    const Extent& extent = directory_.at(ref);
    const bool here = directory_.begun(ref) && extent.copy().tier == tier.number &&
                      extent.copy().current() && !directory_.has_replica(ref);
    if (extent.transfer == 0 && (!here || !is_below_memory(ref))) {
      tier.below_memory.remove(ref);
    } else if (here && extent.transfer == 0 && extent.holds == 0 && extent.waiters == 0 &&
               !extent.charged && is_live(ref) && !tier.ledger.is_shared(extent.copy().stamp)) {
      return ref;
    }
    ref = next;
  }
  return kNoExtent;
}

void Copies::add_replica(ExtentRef ref, SlotTiers::Entry& to, SlotId slot) {
  SlotTiers::Entry& tier = slots_.of(directory_.at(ref).copy());
  directory_.add_replica(ref, to.number, slot, to.ledger.stamp());
  tier.below_memory.remove(ref);
  tier.replicated_bytes += charge_of(ref);
  // Without a record it does not give way. If writes wait for a slot, it does now.
  if (!tier.replicated.add(ref) || tier.ledger.waits_for_slots(now_)) {
    use_replica(ref);
  }
}

void Copies::drop_replica(ExtentRef ref) {
  if (!directory_.has_replica(ref)) {
    return;
  }
  note_replica_gone(ref, slots_.of(directory_.at(ref).copy()));
  const SlotReplica gone = directory_.drop_replica(ref);
  SlotTiers::Entry& tier = slots_.at(gone.tier);
  tier.ledger.give_up(gone.slot, gone.stamp);
  room_in_slots(tier);
}

void Copies::use_replica(ExtentRef ref) {
  SlotTiers::Entry& tier = slots_.of(directory_.at(ref).copy());
  note_replica_gone(ref, tier);
  const SlotReplica before = directory_.use_replica(ref);
  tier.ledger.give_up(before.slot, before.stamp);
  note_in_slot(ref);
  room_in_slots(tier);
}

void Copies::note_replica_gone(ExtentRef ref, SlotTiers::Entry& tier) {
  tier.replicated.remove(ref);
  tier.replicated_bytes -= charge_of(ref);
}

bool Copies::next_replicated_gives_way(SlotTiers::Entry& tier) {
  const SlotUsage usage = tier.tier->usage();
  if (usage.in_use > usage.budget) {
    return false;  // Its budget was lowered: one slot makes no room.
  }
  ExtentRef ref = tier.replicated.first();
  // The slot may be read or written, or stay for a child of fork.
  while (ref != kNoLink && (directory_.at(ref).transfer != 0 ||
                            tier.ledger.is_shared(directory_.at(ref).copy().stamp))) {
    ref = tier.replicated.after(ref);
  }
  if (ref == kNoLink) {
    return false;
  }
  use_replica(ref);
  return true;
}

// A replica in the tier gives way: the bytes are in the tier of the extent's slot.
bool Copies::next_replica_gives_way(SlotTiers::Entry& tier) {
  for (SlotTiers::Entry* const other : slots_.writable()) {
    ExtentRef ref = other->replicated.first();
    while (ref != kNoLink &&
           (directory_.replica(ref).tier != tier.number || directory_.at(ref).transfer != 0)) {
      ref = other->replicated.after(ref);
    }
    if (ref != kNoLink) {
      drop_replica(ref);
      return true;
    }
  }
  return false;
}

// Extents of the order that have come back, or were freed, leave it here. Each joined it with an
// evict, so the looks at them are paid for. Others with transfers and holds are few.
std::uint64_t Copies::drop_from_slots(std::uint64_t bytes, bool awaited) {
  std::uint64_t freed = 0;
  for (ExtentRef ref = order_.first(); ref != kNoLink && freed < bytes;) {
    const ExtentRef next = order_.after(ref);
    const Extent& extent = directory_.at(ref);
    const bool begun = directory_.begun(ref);
    if (!begun || (extent.transfer == 0 && !is_droppable_from_slot(ref))) {
      order_.remove(ref);
    } else if (extent.transfer == 0 && (extent.holds != 0) == awaited && is_live(ref)) {
      order_.remove(ref);
      freed += slot_bytes_of(ref);
      drop_slot(ref);
      directory_.word(kHost, ref).set_phase(Phase::lost);
      journal_.count(&Stats::dropped, directory_.bytes_of(ref));
    }
    ref = next;
  }
  return freed;
}

// The slots of a buffer that is being freed are about to be free.
bool Copies::is_live(ExtentRef ref) const {
  return (directory_.record_of(ref).generation.load(std::memory_order_acquire) & 1) != 0;
}

bool Copies::may_be_as_in_file(ExtentRef ref) const {
  const Extent& extent = directory_.at(ref);
  return directory_.mapped(ref) && extent.copy().exists() && extent.copy().in_file() &&
         extent.copy().sums != nullptr && !stuck_.is_stuck(extent, now_);
}

bool Copies::can_write(ExtentRef ref) const {
  const auto tiers = slots_.writable();
  return may_be_as_in_file(ref) ||
         std::any_of(tiers.begin(), tiers.end(), [&](const SlotTiers::Entry* tier) {
           const bool own = has_own_slot(ref, *tier);
           return (!tier->tier->compresses() && tier->ledger.can_write(now_, false)) ||
                  (own && tier->ledger.can_write(now_, true));
         });
}

SlotTiers::Entry* Copies::destination(ExtentRef ref, unsigned tried) const {
  std::array<Placement::Offer, kMostWritableTiers> offers;
  const auto tiers = slots_.writable();
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const SlotTiers::Entry& tier = *tiers[i];
    const bool own = has_own_slot(ref, tier);
    offers[i] = {.open = (tried >> i & 1) == 0 && tier.ledger.can_write(now_, own),
                 .own = own,
                 .cost = {.rank = tier.rank()}};
  }
  const unsigned best = Placement::cheapest({offers.data(), tiers.size()});
  return best != Placement::kNone ? tiers[best] : nullptr;
}

// It can be written down there without another slot.
bool Copies::has_own_slot(ExtentRef ref, const SlotTiers::Entry& tier) const {
  const SlotCopy& copy = directory_.at(ref).copy();
  return directory_.in_slot(ref) && copy.tier == tier.number && !tier.ledger.is_shared(copy.stamp);
}

std::uint64_t Copies::charge_of(ExtentRef ref) const {
  const SlotCopy& copy = directory_.at(ref).copy();
  return slots_.of(copy).tier->bytes_of(copy.slot);
}

std::uint64_t Copies::slot_bytes_of(ExtentRef ref) const {
  const SlotPages* const pages = directory_.at(ref).copy().pages;
  return pages != nullptr ? pages->slot_bytes() : directory_.bytes_of(ref);
}

}  // namespace tiermem

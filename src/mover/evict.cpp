// Evict: a copy goes, and its frame with it. Also the state of an extent after that, and the end of
// a slot. The stepping thread only; never waits.
#include <algorithm>
#include <utility>

#include "mover/mover.hpp"

namespace tiermem {

// Gives up this space's copy, and writes it down first if it is the only one. Returns false if the
// extent cannot leave now.
bool Mover::start_evict(ExtentRef ref, unsigned space, Priority priority) {
  Extent& extent = directory_.at(ref);
  const ExtentBits bits = directory_.word(space, ref).load();
  if (extent.transfer != 0 || extent.holds != 0 || !directory_.has_frame(ref, space) ||
      bits.pinned()) {
    return false;
  }
  if (bits.dirty() && directory_.readable_elsewhere(ref, space) == kNoSpace) {
    if (memories_[space].lost || !memories_[space].exit_backoff.over(now_)) {
      return false;
    }
    if (space != kHost && priority != Priority::demand && retreat(ref, space)) {
      return true;
    }
    return directory_.droppable(ref) && !can_write(ref) ? leave(ref, space, true)
                                                        : start_demote(ref, space, true, priority);
  }
  // Dirty bytes may go only where another copy has them: a writer may come and go before the next
  // line.
  return leave(ref, space, directory_.readable_elsewhere(ref, space) != kNoSpace);
}

// The frame goes with its bytes. The caller knows that they are elsewhere or unwanted.
bool Mover::leave(ExtentRef ref, unsigned space, bool even_dirty) {
  const Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  if (extent.transfer != 0) {
    return false;
  }
  if (extent.parts != 0 && !extent.charged) {
    word.set_phase(Phase::outgoing);
  } else if (!word.try_outgoing(even_dirty)) {
    return false;
  }
  const FrameId frame = directory_.frame(space, ref);
  if (!directory_.in_window(ref, space)) {
    finish_evict(ref, space, frame, now_);
    // No transfer ends that would tell the requests that wait for this extent's copies to go.
    look_again_ = look_again_ ||
                  std::any_of(pin_waiters_.begin(), pin_waiters_.end(), [&](const auto& waiter) {
                    return waiter.first->needs[waiter.second].ref == ref;
                  });
    return true;
  }
  Transfer& transfer = new_transfer(Transfer::Kind::evict, ref, space, Priority::room);
  transfer.frame = frame;
  transfer.origin = Phase::none;
  transfer.stage = Transfer::Stage::unmap;
  set_freeing(transfer, directory_.resident_bytes(ref));
  submit_job(transfer, kUnmap);
  return true;
}

void Mover::retry_unmaps() {
  if (unmaps_.empty() || !unmap_backoff_.over(now_)) {
    return;
  }
  for (const std::uint32_t number : std::exchange(unmaps_, {})) {
    submit_job(transfers_[number], kUnmap);
  }
}

void Mover::finish_evict(ExtentRef ref, unsigned space, FrameId frame, std::int64_t begun_ns) {
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  const std::uint64_t held = directory_.resident_bytes(ref);
  journal_.note_dropped(ref, space, held, begun_ns);
  if (extent.parts != 0) {
    give_parts(frame, space, std::exchange(extent.parts, 0));
    bounce_.partial_ended();
  } else {
    memories_[space].give_frame(frame, held);
  }
  directory_.frame(space, ref) = {};
  memories_[space].recency.removed(ref, true);
  const bool dropped = word.load().dirty() && directory_.droppable(ref) &&
                       directory_.readable_elsewhere(ref, space) == kNoSpace;
  journal_.count(&Stats::dropped, dropped ? held : 0);
  journal_.count(&Stats::evicted_clean, word.load().dirty() ? 0 : held);
  if (space == kHost && extent.prefetched) {
    journal_.count(&Stats::prefetched_unused,
                   word.load().referenced() ? 0 : directory_.bytes_of(ref));
    prefetch_used(ref, memories_[space]);
  }
  word.clear_dirty();
  word.clear_at_home();
  word.set_phase(Phase::none);
  settle(ref);
  if (dropped) {
    directory_.word(kHost, ref).set_phase(Phase::lost);
  }
}

// After a copy has gone: the last one of several becomes exclusive, and an extent without any copy
// that was never written down is zero again.
void Mover::settle(ExtentRef ref) {
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
  } else if (copies == 0 && !directory_.at(ref).has_slot && directory_.record_of(ref).file == 0 &&
             host.load().phase() == Phase::none) {
    host.set_phase(Phase::zero);
  }
}

void Mover::drop_slot(ExtentRef ref) {
  Extent& extent = directory_.at(ref);
  if (extent.has_slot) {
    give_up_slot(extent);
    room_in_slots();
  }
  Checksums::destroy(extent.sums);
  extent.sums = nullptr;
  extent.zeros = 0;
}

// Writes that were refused for want of slots find some now.
void Mover::room_in_slots() {
  if (block_slots_.slots_came()) {
    stuck_until_ = std::min(stuck_until_, now_ + kStuckNs);
  }
}

// The extent has no slot after this. A child of fork may go on reading it.
void Mover::give_up_slot(Extent& extent) {
  block_slots_.give_up(extent.slot, extent.slot_stamp);
  extent.has_slot = false;
  extent.slot_stale = false;
  SlotPages::destroy(extent.slot_pages);
  extent.slot_pages = nullptr;
  Checksums::destroy(extent.sums);
  extent.sums = nullptr;
}

// Drops bytes of droppable buffers from slots that have their only copy, before a request is
// refused because memory and block tier are full. Extents that a request waits for go last. Returns
// whether there were any.
bool Mover::drop_from_slots(std::uint64_t bytes) {
  if (block_ == nullptr || block_slots_.last_error().code != Code::no_capacity) {
    return false;
  }
  std::uint64_t freed = 0;
  for (const bool awaited : {false, true}) {
    for (std::uint32_t i = 0; i < residency_.buffers.used() && freed < bytes; ++i) {
      const BufferRecord& record = residency_.buffers.at(i);
      const bool live = (record.generation.load(std::memory_order_acquire) & 1) != 0;
      if (!live || (record.flags.load(std::memory_order_relaxed) & kDroppable) == 0) {
        continue;
      }
      const ExtentRef first = record.first.load(std::memory_order_relaxed);
      const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
      directory_.each_begun(first, end, [&](ExtentRef ref) {
        const Extent& extent = directory_.at(ref);
        ExtentWord& host = directory_.word(kHost, ref);
        if (freed >= bytes || !extent.has_slot || extent.parts != 0 || extent.transfer != 0 ||
            (extent.holds != 0) != awaited || host.load().phase() != Phase::none ||
            directory_.readable_elsewhere(ref, kHost) != kNoSpace) {
          return;
        }
        freed += slot_bytes_of(ref);
        drop_slot(ref);
        host.set_phase(Phase::lost);
        journal_.count(&Stats::dropped, directory_.bytes_of(ref));
      });
    }
    if (freed != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace tiermem

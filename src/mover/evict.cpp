// Evict: a copy goes, and its frame with it. Also the state of an extent after that, and the end of
// a slot. The stepping thread only; never waits.
#include <algorithm>
#include <cassert>
#include <utility>

#include "mover/transfer_engine.hpp"

namespace tiermem {

// Gives up this space's copy, and writes it down first if it is the only one. Returns false if the
// extent cannot leave now.
bool TransferEngine::start_evict(ExtentRef ref, unsigned space, Priority priority) {
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
bool TransferEngine::leave(ExtentRef ref, unsigned space, bool even_dirty) {
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
    left_watched_ =
        left_watched_ || std::find(watched_.begin(), watched_.end(), ref) != watched_.end();
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

void TransferEngine::retry_unmaps() {
  if (unmaps_.empty() || !unmap_backoff_.over(now_)) {
    return;
  }
  for (const std::uint32_t number : std::exchange(unmaps_, {})) {
    submit_job(transfers_[number], kUnmap);
  }
}

void TransferEngine::finish_evict(ExtentRef ref, unsigned space, FrameId frame,
                                  std::int64_t begun_ns) {
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
void TransferEngine::settle(ExtentRef ref) {
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

void TransferEngine::drop_slot(ExtentRef ref) {
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
void TransferEngine::room_in_slots() {
  if (block_slots_.slots_came()) {
    stuck_until_ = std::min(stuck_until_, now_ + kStuckNs);
  }
}

// The extent has no slot after this. A child of fork may go on reading it.
void TransferEngine::give_up_slot(Extent& extent) {
  block_slots_.give_up(extent.slot, extent.slot_stamp);
  extent.has_slot = false;
  extent.slot_stale = false;
  SlotPages::destroy(extent.slot_pages);
  extent.slot_pages = nullptr;
  Checksums::destroy(extent.sums);
  extent.sums = nullptr;
}

bool TransferEngine::may_retreat(ExtentRef ref, unsigned space) const {
  if (space == kHost) {
    return false;
  }
  const FrameBooks dram = memories_[kHost].tier->books();
  return dram.in_use + directory_.bytes_of(ref) <= dram.budget;
}

// A device's victim goes to DRAM where that has room; else to the block tier by the staging, and
// DRAM is asked to have room for the next. The step frees frames of DRAM ahead of need later: this
// is the middle of a search for victims.
bool TransferEngine::retreat(ExtentRef ref, [[maybe_unused]] unsigned space) {
  const FrameId frame = memories_[kHost].take_frame(directory_.frame_request(ref, kHost));
  if (!frame.valid()) {
    memories_[kHost].note_shortage(directory_.bytes_of(ref), options_.ahead_bytes_max);
    memories_[kHost].begin_trim(directory_.bytes_of(ref), hands_);
    return false;
  }
  memories_[kHost].taken_for_victims = directory_.bytes_of(ref);
  start_promote(ref, kHost, frame, Priority::room, nullptr);
  Transfer& transfer = transfers_[directory_.at(ref).transfer - 1];
  transfer.retreats = true;
  assert(frees_in(transfer) == space);
  set_freeing(transfer, directory_.bytes_of(ref));
  return true;
}

// The extent has its bytes in DRAM, or stays on the device because it was held again or written, or
// because the copy failed.
void TransferEngine::retreated(ExtentRef ref, unsigned space) {
  if (directory_.at(ref).holds != 0 || !directory_.readable(ref, kHost) ||
      !leave(ref, space, true)) {
    memories_[space].recency.rejected(ref);
  }
}

void TransferEngine::lose(ExtentRef ref, unsigned space) {
  directory_.word(kHost, ref).set_phase(Phase::lost);
  directory_.at(ref).lost_with = static_cast<std::uint8_t>(space);
  ++losses_[directory_.at(ref).buffer];
}

void TransferEngine::prefetch_used(ExtentRef ref, Memory& memory) {
  Extent& extent = directory_.at(ref);
  if (extent.prefetched) {
    extent.prefetched = false;
    memory.unused_prefetched -= directory_.bytes_of(ref);
  }
}

}  // namespace tiermem

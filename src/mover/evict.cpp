// Evicts: a copy goes, and its frame with it. A victim goes to a memory of higher rank first if one
// has room: a device's to the host, the host's to the next memory of the host. The stepping thread
// only; never waits.
#include <algorithm>

#include "mover/transfer_engine.hpp"

namespace tiermem {

bool TransferEngine::start_evict(ExtentRef ref, unsigned space, Priority priority, Leaves leaves) {
  const Extent& extent = directory_.at(ref);
  if (extent.transfer != 0 || extent.holds != 0 || !directory_.has_frame(ref, space)) {
    return false;
  }
  const ExtentBits bits = directory_.bits(space, ref);
  if (bits.pinned()) {
    return false;
  }
  Placement::Victim victim = as_victim(ref, space, bits);
  victim.asked = priority == Priority::demand;
  victim.spent = victim.relocates &&
                 !memories_.of(space, directory_.frame(space, ref)).recency.leaves_by_order(ref);
  PageMask some = extent.parts;
  if (leaves == Leaves::by_level && some != 0 && !extent.charged) {
    MemoryLedger& memory = memories_.of(space, directory_.frame(space, ref));
    some = memory.recency.leaves_by_order(ref) ? parts_.take_turn(ref) : some;
    if (some == 0) {
      memory.recency.passed(ref, directory_.resident_bytes(ref));
      return false;
    }
  }
  for (const Placement::Destination to : Placement::destinations(victim)) {
    switch (to) {
      case Placement::Destination::released:
        // Dirty bytes may go only where another copy has them: a writer may come and go before this
        // line.
        return leave(ref, space, victim.elsewhere, some);
      case Placement::Destination::memory:
        if (sink(ref, space, priority)) {
          return true;
        }
        break;  // None has room.
      case Placement::Destination::slot:
        return demoter_.start(ref, space, true, priority, some);
      case Placement::Destination::dropped:
        return leave(ref, space, true);
    }
  }
  return false;
}

Placement::Victim TransferEngine::as_victim(ExtentRef ref, unsigned space, ExtentBits bits) const {
  Placement::Victim victim;
  victim.dirty = bits.dirty();
  victim.elsewhere = directory_.readable_elsewhere(ref, space) != kNoSpace;
  victim.on_device = space != kHost;
  victim.relocates =
      !victim.on_device && memories_.in(space).size() > 1 &&
      memories_.of(space, directory_.frame(space, ref)).rank() + 1 < memories_.in(space).size() &&
      relocator_.can_start(ref, space);
  if (!victim.dirty) {
    return victim;  // A slot has the bytes: the rest does not matter, and victims are many.
  }
  victim.droppable = directory_.droppable(ref);
  const MemoryLedger& memory = memories_.of(space, directory_.frame(space, ref));
  victim.way_out = !memory.lost && memory.exit_backoff.over(carrier_.now());
  victim.writable = copies_.can_write(ref);
  if (victim.on_device || victim.relocates) {
    victim.has_room = has_room_below(ref, space);
  }
  return victim;
}

// `some`: pages of a partial extent, of a file that is mapped read-only. The others stay, if these
// can be dropped.
bool TransferEngine::leave(ExtentRef ref, unsigned space, bool even_dirty, PageMask some) {
  const Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  if (extent.transfer != 0) {
    return false;
  }
  if (extent.parts != 0 && !extent.charged) {
    word.set_phase(Phase::outgoing);
  } else if (directory_.bits(space, ref).pinned() || !word.try_outgoing(even_dirty)) {
    return false;
  }
  const FrameId frame = directory_.frame(space, ref);
  if (!directory_.in_window(ref, space)) {
    copies_.finish_evict(ref, space, frame, carrier_.now());
    // No transfer ends that would tell the requests that wait for this extent's copies to go.
    left_watched_ =
        left_watched_ || std::find(watched_.begin(), watched_.end(), ref) != watched_.end();
    return true;
  }
  Evict& transfer = carrier_.create<Evict>(ref, space, Priority::room);
  transfer.frame = frame;
  // The program cannot have changed the bytes of a file that is mapped read-only. Small extents of
  // it leave many at a time, as other pages do that were not written.
  const bool drops = directory_.touchable(ref) && !directory_.mapped(ref) &&
                     directory_.pages_in(ref) <= kMostParts &&
                     memories_.space(space).may_be_unchanged(frame);
  transfer.pages = drops && some != extent.parts ? some : 0;
  carrier_.set_freeing(transfer, carrier_.memory_of(transfer),
                       transfer.pages != 0 ? bytes_of_pages(some) : directory_.resident_bytes(ref));
  if (drops) {
    carrier_.drop(transfer);
  } else {
    advance(transfer, Stage::unmap);
    carrier_.submit(transfer, kUnmap);
  }
  return true;
}

void TransferEngine::drop_ended(Evict& transfer, bool dropped) {
  if (dropped) {
    left(transfer);
  } else if (carrier_.others_stay(transfer)) {
    const ExtentRef ref = transfer.ref;
    MemoryLedger& memory = carrier_.memory_of(transfer);
    carrier_.end(transfer);
    directory_.word(kHost, ref).set_phase(Phase::none);
    memory.recency.rejected(ref);
    carrier_.extent_changed(ref, kHost);
  } else {
    advance(transfer, Stage::unmap);
    carrier_.submit(transfer, kUnmap);
  }
}

void TransferEngine::evicted(Evict& transfer) {
  if (carrier_.unmapped(transfer)) {
    left(transfer);
  }
}

// The frame is out of its window, or some pages are.
void TransferEngine::left(Evict& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  const FrameId frame = transfer.frame;
  const Journal::ReasonScope leaving(journal_, transfer.reason);
  const std::int64_t begun_ns = transfer.begun_ns;
  const bool others_stay = carrier_.others_stay(transfer);
  const PageMask pages = others_stay ? transfer.pages : directory_.at(ref).parts;
  carrier_.end(transfer);
  parts_.note_left(ref, pages);
  others_stay ? copies_.finish_part(ref, pages, {}, begun_ns)
              : copies_.finish_evict(ref, space, frame, begun_ns);
  carrier_.extent_changed(ref, space);
}

// The extent was written down because its frame is wanted.
void TransferEngine::evict_written(const Carrier::Next& next) {
  const Journal::ReasonScope leaving(journal_, next.reason);
  if (!start_evict(next.ref, next.space, next.priority)) {
    memory_with(next).recency.rejected(next.ref);  // It was pinned or held: a candidate again.
  }
  if (directory_.at(next.ref).transfer == 0) {
    carrier_.extent_changed(next.ref, next.space);
  }
}

// Returns the memories of higher rank: for a device's extent those of the host.
std::span<MemoryLedger* const> TransferEngine::memories_below(ExtentRef ref, unsigned space) {
  const std::span<MemoryLedger* const> host = memories_.in(kHost);
  return space == kHost ? host.subspan(memories_.of(kHost, directory_.frame(kHost, ref)).rank() + 1)
                        : host;
}

bool TransferEngine::has_room_below(ExtentRef ref, unsigned space) const {
  const std::span<const MemoryLedger* const> host = memories_.in(kHost);
  const unsigned first =
      space == kHost ? memories_.of(kHost, directory_.frame(kHost, ref)).rank() + 1 : 0;
  for (const MemoryLedger* const memory : host.subspan(first)) {
    const FrameUsage usage = memory->tier->usage();
    if (takes_extent(*memory, ref) && usage.in_use + directory_.bytes_of(ref) <= usage.budget) {
      return true;
    }
  }
  return false;
}

// Moves a victim to the next memory of higher rank that has room; the one that it prefers comes
// first. Returns false if none has. These are then asked to have room for the next one. The step
// frees their frames ahead of need later: this is the middle of a search for victims.
bool TransferEngine::sink(ExtentRef ref, unsigned space, Priority priority) {
  const std::uint64_t bytes = directory_.bytes_of(ref);
  const std::span<MemoryLedger* const> below = memories_below(ref, space);
  const unsigned lowest = below.empty() ? 0 : below.front()->rank();
  const unsigned preferred = directory_.at(ref).preferred;
  const unsigned first = preferred > lowest ? preferred - lowest : 0;
  for (unsigned position = 0; position < below.size(); ++position) {
    MemoryLedger* const memory = below[Placement::in_order(position, first)];
    if (!takes_extent(*memory, ref)) {
      continue;
    }
    const FrameId frame = memory->take_frame(directory_.frame_request(ref, kHost));
    if (!frame.valid()) {
      memory->note_shortage(bytes, options_.ahead_bytes_max);
      memory->begin_trim(bytes, workers_);
      if (space == kHost) {
        memory->taken_for_victims = bytes;  // No request makes room there.
      }
      continue;
    }
    memory->taken_for_victims = bytes;
    if (space != kHost) {
      promoter_.start(ref, kHost, frame, Priority::room, nullptr, false);
      promoter_.note_spill(ref);
      return true;
    }
    if (!relocator_.start(ref, space, frame, priority, false)) {
      memory->give_frame(frame, bytes);
      return false;
    }
    return true;
  }
  return false;
}

// The extent has its bytes in DRAM, or stays on the device because it was held again or written, or
// because the copy failed.
void TransferEngine::spilled(const Carrier::Next& next) {
  const Journal::ReasonScope leaving(journal_, next.reason);
  if (directory_.at(next.ref).holds != 0 || !directory_.readable(next.ref, kHost) ||
      !leave(next.ref, next.space, true)) {
    memory_with(next).recency.rejected(next.ref);
  }
}

}  // namespace tiermem

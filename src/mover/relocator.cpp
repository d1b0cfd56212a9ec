#include "mover/relocator.hpp"

#include <utility>

#include "mover/copies.hpp"

namespace tiermem {

bool Relocator::can_start(ExtentRef ref, unsigned space) const {
  const Extent& extent = directory_.at(ref);
  // A mapped file that is read-only leaves its window only by being dropped.
  return directory_.word(space, ref).load().phase() == Phase::exclusive && extent.transfer == 0 &&
         extent.holds == 0 && extent.parts == 0 && !extent.stuck &&
         directory_.touchable(ref) == directory_.mapped(ref) &&
         !directory_.bits(space, ref).pinned();
}

bool Relocator::start(ExtentRef ref, unsigned space, FrameId to, Priority priority, bool climbs) {
  if (!can_start(ref, space) || !directory_.word(space, ref).try_outgoing(true)) {
    return false;
  }
  Relocate& transfer = carrier_.create<Relocate>(ref, space, priority);
  transfer.frame = directory_.frame(space, ref);
  transfer.to = to;
  transfer.climbs = climbs;
  carrier_.set_freeing(transfer, carrier_.memory_of(transfer), directory_.bytes_of(ref));
  transfer.job.other = to;
  transfer.job.host_at =
      directory_.in_window(ref, space) ? directory_.window_at(ref, space) : nullptr;
  advance(transfer, Stage::relocate);
  carrier_.submit(transfer, kRelocate);
  return true;
}

void Relocator::job_done(Relocate& transfer) {
  transfer.job.status.ok() ? moved(transfer) : failed(transfer);
}

// The extent is in the other memory, and its old frame is free.
void Relocator::moved(Relocate& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  const std::uint64_t bytes = directory_.bytes_of(ref);
  const FrameId frame = transfer.frame;
  MemoryLedger& from = memories_.of(space, frame);
  MemoryLedger& to = memories_.of(space, transfer.to);
  ExtentWord& word = directory_.word(space, ref);
  Extent& extent = directory_.at(ref);
  to.entry_backoff.worked();
  stuck_.let_go(extent);
  directory_.frame(space, ref) = transfer.to;
  if (transfer.job.taken_home) {
    directory_.address(ref).store(memories_.space(space).bytes_at(transfer.to, nullptr),
                                  std::memory_order_relaxed);
    if (transfer.job.host_at != nullptr) {
      // A spare buffer has its frames in its window.
      (void)word.note_known_elsewhere();
      word.set_at_home();
    }
  }
  if (extent.prefetched) {
    from.unused_prefetched -= bytes;
    to.unused_prefetched += bytes;
  }
  Copies::note_left(extent, from);
  const bool climbed = transfer.climbs && to.rank() < from.rank();
  extent.uses = climbed && to.rank() == extent.preferred ? 1 : 0;
  from.recency.removed(ref, true);
  (void)word.take_referenced();
  Copies::note_came(directory_, ref, to);
  transfer.outcome = Transfer::Outcome::moved;
  transfer.moved = bytes;
  carrier_.end(transfer);
  from.give_frame(frame, bytes);
  word.set_phase(Phase::exclusive);
  carrier_.extent_changed(ref, space);
}

// The extent stays. Another memory of higher rank, or a slot, may take the next victim.
void Relocator::failed(Relocate& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  MemoryLedger& from = carrier_.memory_of(transfer);
  MemoryLedger& to = memories_.of(space, transfer.to);
  if (transfer.job.status.code() == Code::no_capacity) {
    to.entry_backoff.failed(carrier_.now());
  } else {
    stuck_.kept(directory_.at(ref), carrier_.now());
  }
  to.give_frame(transfer.to, directory_.bytes_of(ref));
  carrier_.end(transfer);
  directory_.word(space, ref).set_phase(Phase::exclusive);
  from.recency.rejected(ref);
  carrier_.extent_changed(ref, space);
}

}  // namespace tiermem

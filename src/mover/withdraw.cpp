// Demotes of mapped extents. The program writes them without a pin, so their bytes do not change
// only once the frame is out of its window. A demote withdraws the frame first, and then hashes and
// writes like any other. A frame that was watched and not written is dropped. A touch before the
// end recalls the extent: the frame goes back, without I/O. The stepping thread only; never waits.
#include <atomic>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "mover/demoter.hpp"

namespace tiermem {

bool Demoter::start_withdraw(ExtentRef ref, unsigned space, bool evict_after, Priority priority,
                             PageMask some) {
  ExtentWord& word = directory_.word(space, ref);
  const PageMask pages = directory_.at(ref).parts;
  if (stuck_.is_stuck(directory_.at(ref), carrier_.now()) || directory_.bits(space, ref).pinned()) {
    return false;
  }
  const unsigned not_asked = not_offered(ref);
  SlotTiers::Entry* to = reserve_write(ref, not_asked);
  if (to == nullptr && copies_.may_be_as_in_file(ref)) {
    to = &slots_.at(kFileTier);  // The file is compared with the bytes, and never written.
  }
  if (to == nullptr) {
    return false;
  }
  if (pages != 0) {
    word.set_phase(Phase::outgoing);
    Demote& transfer = carrier_.create<DemoteParts>(ref, space, priority);
    transfer.pages = some != 0 && leaves_in_part(ref, *to) ? some : pages;
    transfer.to = to;
    transfer.tried = static_cast<std::uint8_t>(not_asked);
    transfer.slot_tier = &slots_.of(directory_.at(ref).copy());
    begin_withdraw(transfer, evict_after);
    return directory_.at(ref).transfer != 0;  // There may be no frame for pages that leave alone.
  }
  if (!word.try_outgoing(true)) {
    to->ledger.return_wear(static_cast<std::int64_t>(directory_.bytes_of(ref)));
    return false;
  }
  Demote& transfer = carrier_.create<Demote>(ref, space, priority);
  transfer.to = to;
  transfer.tried = static_cast<std::uint8_t>(not_asked);
  transfer.slot_tier = to;
  begin_withdraw(transfer, evict_after);
  return true;
}

// Some pages can leave without the others if they can be written where the slot has them. Otherwise
// the whole extent must go to another slot.
bool Demoter::leaves_in_part(ExtentRef ref, const SlotTiers::Entry& to) const {
  const SlotCopy& copy = directory_.at(ref).copy();
  return copy.in_file() || (&to == &slots_.of(copy) && !to.ledger.is_shared(copy.stamp));
}

void Demoter::begin_withdraw(Demote& transfer, bool evict_after) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  transfer.withdrawn = true;
  transfer.evict_after = evict_after;
  transfer.wear = static_cast<std::int64_t>(directory_.bytes_of(ref));
  transfer.frame = directory_.frame(space, ref);
  if (evict_after) {
    carrier_.set_freeing(
        transfer, carrier_.memory_of(transfer),
        transfer.pages != 0 ? bytes_of_pages(transfer.pages) : directory_.bytes_of(ref));
  }
  if (evict_after && directory_.in_slot_or_file(ref) &&
      memories_.space(space).may_be_unchanged(transfer.frame)) {
    carrier_.drop(transfer);
  } else {
    withdraw(transfer);
  }
}

void Demoter::withdraw(Demote& transfer) {
  if (!carrier_.others_stay(transfer)) {
    advance(transfer, Stage::withdraw);
    carrier_.submit(transfer, kWithdraw);
    return;
  }
  // The pages leave for a frame of their own, which is given back like any other.
  const FrameId split = carrier_.memory_of(transfer).tier->split_parts(
      transfer.frame, static_cast<unsigned>(std::popcount(transfer.pages)));
  if (!split.valid()) {
    parts_.end_turns(transfer.ref);
    stay(transfer, {});
    return;
  }
  transfer.job.other = std::exchange(transfer.frame, split);
  advance(transfer, Stage::withdraw);
  carrier_.submit(transfer, kWithdrawTo);
}

void Demoter::drop_ended(Demote& transfer, bool dropped) {
  if (transfer.recalled) {
    stay(transfer, {});
    return;
  }
  parts_.write_tracking().left(directory_.at(transfer.ref).unwritten, !dropped);
  dropped ? gone(transfer) : withdraw(transfer);
}

// A partial extent comes back only if it has the wanted pages. Otherwise the requests for other
// pages, and the room for them, would take turns for ever.
void Demoter::recall(const Need& need) {
  const Extent& extent = directory_.at(need.ref);
  const bool enough = extent.parts == 0 || (need.pages != 0 && (need.pages & ~extent.parts) == 0);
  if (extent.transfer == 0 || !enough || !carrier_.transfer_of(need.ref)->demotes()) {
    return;
  }
  Demote& transfer = as<Demote>(*carrier_.transfer_of(need.ref));
  if (!transfer.withdrawn || transfer.recalled) {
    return;
  }
  transfer.recalled = true;
  keep(transfer);
  if (transfer.stage == Stage::hash) {
    std::atomic_ref(transfer.job.stop).store(true, std::memory_order_relaxed);
  }
  journal_.count(&Stats::recalled);
}

// It frees nothing any more: the frame goes back into its window.
void Demoter::keep(Demote& transfer) {
  transfer.evict_after = false;
  carrier_.free_nothing(transfer);
}

// The frame is out, or could not leave: its pages are locked for I/O of the program's own.
void Demoter::withdrawn(Demote& transfer) {
  const ExtentRef ref = transfer.ref;
  if (!transfer.job.status.ok()) {
    Status busy = transfer.job.status.clone();
    journal_.count(&Stats::withdrawals_refused);
    stuck_.kept(directory_.at(ref), carrier_.now());
    stay(transfer, std::move(busy));
    return;
  }
  stuck_.let_go(directory_.at(ref));
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  if (!compare_with_file(transfer)) {
    write_elsewhere(transfer);
  }
}

// The bytes differ from those of the file, or cannot be compared. Without a tier that takes writes
// they stay.
void Demoter::write_elsewhere(Demote& transfer) {
  if (!transfer.to->has_files()) {
    measure(transfer);
    return;
  }
  transfer.undo_error = error_info(
      Code::no_capacity,
      "buffer '{}': {} of a private file were written, and no block tier takes them; add "
      "one with nvme=, or free the buffer",
      directory_.record_of(transfer.ref).label.get().view(),
      human_bytes(directory_.bytes_of(transfer.ref)));
  // If a tier takes writes at another time, requests wait for the next try, as for any slot.
  Extent& extent = directory_.at(transfer.ref);
  slots_.any_writable() ? stuck_.lacks_slot(extent, carrier_.now() + Stuck::kRetryNs)
                        : stuck_.leaves_later(extent, carrier_.now());
  keep(transfer);
  map_back(transfer);
}

// An extent that is still in its file needs a slot only if the program has written it. Returns
// false if the checksums of the file's bytes are not known.
bool Demoter::compare_with_file(Demote& transfer) {
  const SlotCopy& copy = directory_.at(transfer.ref).copy();
  if (!copy.exists() || !copy.in_file() || copy.sums == nullptr) {
    return false;
  }
  transfer.sums.reset(Checksums::make(directory_.bytes_of(transfer.ref), copy.sums->block_bytes));
  if (transfer.sums == nullptr && transfer.pages == 0) {
    return false;
  }
  if (transfer.sums == nullptr) {
    failed(transfer, no_sums());
    return true;
  }
  if (transfer.pages != 0) {
    transfer.sums->copy(*copy.sums);
    transfer.slot = copy.slot;  // The other pages may be read from there.
  }
  transfer.job.data = carrier_.memory_of(transfer).tier->space().bytes_at(transfer.frame, nullptr);
  transfer.job.sums = transfer.sums.get();
  transfer.hashing = true;
  advance(transfer, Stage::hash);
  carrier_.submit(transfer, kHash);
  return true;
}

// The hash of an extent in its file is known. Bytes that differ get a slot.
void Demoter::compared_with_file(Demote& transfer) {
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  const Checksums& of_file = *directory_.at(transfer.ref).copy().sums;
  if (transfer.sums->first_unlike(of_file) == of_file.count) {
    carrier_.set_range(transfer, 0, 0);
    written(transfer);
  } else {
    write_elsewhere(transfer);
  }
}

void Demoter::map_back(Demote& transfer) {
  advance(transfer, Stage::remap);
  carrier_.submit(transfer, carrier_.others_stay(transfer) ? kRestoreFrom : kRestore);
}

// The extent is in its window as before.
void Demoter::stay(Demote& transfer, Status why) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  ExtentWord& word = directory_.word(space, ref);
  MemoryLedger& memory = carrier_.memory_of(transfer);
  if (transfer.recalled) {
    word.touch();
  }
  if (const FrameId frame = directory_.frame(space, ref); transfer.frame != frame) {
    memory.tier->join_parts(transfer.frame, frame);
  }
  end(transfer);
  word.set_phase(directory_.at(ref).parts != 0 ? Phase::none : Phase::exclusive);
  memory.recency.rejected(ref);
  carrier_.extent_changed(ref, space, std::move(why), Ended::Failed::to_leave);
}

// Its bytes are in the slot, and its frame is free. Or some of its pages have gone.
void Demoter::gone(Demote& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  const FrameId frame = transfer.frame;
  const Journal::ReasonScope leaving(journal_, transfer.reason);
  const std::int64_t begun_ns = transfer.begun_ns;
  const PageMask pages = transfer.pages;
  const bool others_stay = carrier_.others_stay(transfer);
  end(transfer);
  if (pages != 0) {
    parts_.note_left(ref, pages);
  }
  if (others_stay) {
    const bool dropped = frame == directory_.frame(space, ref);
    copies_.finish_part(ref, pages, dropped ? FrameId{} : frame, begun_ns);
  } else {
    directory_.word(space, ref).clear_dirty();
    copies_.finish_evict(ref, space, frame, begun_ns);
  }
  carrier_.extent_changed(ref, space);
}

}  // namespace tiermem

// Demotes of mapped extents. The program writes them without a pin, so their bytes do not change
// only once the frame is out of its window. A demote withdraws the frame first, and then hashes and
// writes like any other. A frame that was watched and not written is dropped. A touch before the
// end recalls the extent: the frame goes back, without I/O. The stepping thread only; never waits.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "mover/transfer_engine.hpp"

namespace tiermem {

bool TransferEngine::start_withdraw(ExtentRef ref, unsigned space, bool evict_after,
                                    Priority priority) {
  ExtentWord& word = directory_.word(space, ref);
  const PageMask parts = directory_.at(ref).parts;
  if ((directory_.at(ref).stuck && now_ < stuck_until_) || word.load().pinned() ||
      !block_slots_.may_wear(directory_.bytes_of(ref), now_)) {
    return false;
  }
  if (parts != 0) {
    word.set_phase(Phase::outgoing);
  } else if (!word.try_outgoing(true)) {
    block_slots_.return_wear(static_cast<std::int64_t>(directory_.bytes_of(ref)));
    return false;
  }
  Transfer& transfer = new_transfer(Transfer::Kind::demote, ref, space, priority);
  transfer.withdrawn = true;
  transfer.pages = parts;
  transfer.evict_after = evict_after;
  transfer.wear = static_cast<std::int64_t>(directory_.bytes_of(ref));
  transfer.slot_tier = block_;
  transfer.frame = directory_.frame(space, ref);
  if (evict_after) {
    set_freeing(transfer, directory_.resident_bytes(ref));
  }
  if (evict_after && directory_.in_slot(ref) &&
      memories_[space].tier->may_be_unchanged(transfer.frame)) {
    transfer.stage = Transfer::Stage::drop;
    drops_.push_back(transfer.job.transfer);
  } else {
    withdraw(transfer);
  }
  return true;
}

void TransferEngine::withdraw(Transfer& transfer) {
  transfer.stage = Transfer::Stage::withdraw;
  submit_job(transfer, kWithdraw);
}

// Frames that were not written leave without being moved, hashed or written. Many leave in one
// call, because each call flushes the pages from all processors.
bool TransferEngine::run_drops() {
  std::array<AddressableTier::Unchanged, 64> frames;
  std::size_t n = 0;
  const std::size_t taken = std::min(drops_.size(), frames.size());
  for (std::size_t i = 0; i < taken; ++i) {
    const Transfer& transfer = transfers_[drops_[i]];
    if (!transfer.recalled) {
      frames[n++] = {transfer.frame, directory_.window_at(transfer.ref, transfer.space)};
    }
  }
  if (n != 0) {
    memories_[kHost].tier->drop_unchanged(std::span(frames.data(), n));
  }
  n = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    Transfer& transfer = transfers_[drops_.front()];
    drops_.pop_front();
    if (transfer.recalled) {
      stay(transfer, {});
      continue;
    }
    const bool dropped = frames[n++].dropped;
    watching_.left(directory_.at(transfer.ref).unwritten, !dropped);
    dropped ? gone(transfer) : withdraw(transfer);
  }
  return taken != 0;
}

// A request wants the extent: it comes back as soon as its slot is whole. A partial extent comes
// back only if it has the wanted pages. Otherwise the requests for other pages, and the room for
// them, would take turns for ever.
void TransferEngine::recall(const Need& need) {
  const Extent& extent = directory_.at(need.ref);
  const std::uint32_t at = extent.transfer;
  const bool enough = extent.parts == 0 || (need.pages != 0 && (need.pages & ~extent.parts) == 0);
  if (at == 0 || !enough || !transfers_[at - 1].withdrawn || transfers_[at - 1].recalled) {
    return;
  }
  Transfer& transfer = transfers_[at - 1];
  transfer.recalled = true;
  keep(transfer);
  if (transfer.stage == Transfer::Stage::hash) {
    std::atomic_ref(transfer.job.stop).store(true, std::memory_order_relaxed);
  }
  journal_.count(&Stats::recalled);
}

// It frees nothing any more: the frame goes back into its window.
void TransferEngine::keep(Transfer& transfer) {
  transfer.evict_after = false;
  set_freeing(transfer, 0);
}

bool TransferEngine::comes_back(ExtentRef ref) const {
  const std::uint32_t at = directory_.at(ref).transfer;
  return at != 0 && transfers_[at - 1].withdrawn && !transfers_[at - 1].evict_after;
}

// The frame is out, or could not leave: its pages are locked for I/O of the program's own.
void TransferEngine::withdrawn(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  if (!transfer.job.status.ok()) {
    Status busy = transfer.job.status.clone();
    journal_.count(&Stats::withdrawals_refused);
    stuck_since_ = stuck_since_ == 0 ? std::max<std::int64_t>(now_, 1) : stuck_since_;
    withdrawals_again_at_ = now_ + kStuckNs;
    leaves_later(ref);
    stay(transfer, std::move(busy));
    return;
  }
  stuck_since_ = 0;
  directory_.at(ref).stuck = false;
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  measure(transfer);
}

// The extent cannot leave now, for a reason that others need not share.
void TransferEngine::leaves_later(ExtentRef ref) {
  stuck_until_ = now_ + kStuckNs;
  directory_.at(ref).stuck = true;
}

void TransferEngine::map_back(Transfer& transfer) {
  transfer.stage = Transfer::Stage::remap;
  submit_job(transfer, kRestore);
}

void TransferEngine::mapped_back(Transfer& transfer) {
  assert(transfer.job.status.ok());  // restore() asks until it is done.
  stay(transfer, Status(transfer.undo_error));
}

// The extent is in its window as before.
void TransferEngine::stay(Transfer& transfer, Status why) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  ExtentWord& word = directory_.word(space, ref);
  if (transfer.recalled) {
    word.touch();
  }
  end_transfer(transfer);
  word.set_phase(directory_.at(ref).parts != 0 ? Phase::none : Phase::exclusive);
  memories_[space].recency.rejected(ref);
  extent_changed(ref, space, std::move(why), Ended::Failed::to_leave);
}

// Its bytes are in the slot, and its frame is free.
void TransferEngine::gone(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  const FrameId frame = transfer.frame;
  const Journal::ReasonScope leaving(journal_, transfer.reason);
  const std::int64_t begun_ns = transfer.begun_ns;
  end_transfer(transfer);
  directory_.word(space, ref).clear_dirty();
  finish_evict(ref, space, frame, begun_ns);
  extent_changed(ref, space);
}

}  // namespace tiermem

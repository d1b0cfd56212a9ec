// Promote: an extent's bytes come into a frame from a slot, a file or another space. Each function
// is one step of the transfer's life; `stage` says which comes next. The stepping thread only;
// never waits.
#include <algorithm>
#include <cassert>
#include <utility>

#include "mover/transfer_engine.hpp"

namespace tiermem {

// With the room that the need has.
void TransferEngine::start_promote(Need& need, Priority priority) {
  FrameId frame = std::exchange(need.frame, {});
  if (need.charged) {
    frame = directory_.frame(need.space, need.ref);
    need.charged = false;
    directory_.at(need.ref).charged = false;
  }
  need.planned = false;
  directory_.at(need.ref).writes = need.changes;
  start_promote(need.ref, need.space, frame, priority, nullptr, need.part, need.shown);
}

// It is there already; on a device perhaps in use.
void TransferEngine::start_show(const Need& need) {
  Transfer& transfer = new_transfer(Transfer::Kind::show, need.ref, need.space, Priority::demand);
  transfer.frame = directory_.frame(need.space, need.ref);
  submit_job(transfer, kShow);
}

void TransferEngine::start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                                   Request* discards_for, PageMask pages, bool shows) {
  if (!bounce_.has_areas() && takes_parts(ref)) {
    bounce_.prepare(budget_changes_);  // Before memory is full.
  }
  Transfer& transfer = new_transfer(Transfer::Kind::promote, ref, space, priority);
  ExtentWord& word = directory_.word(space, ref);
  transfer.origin = word.load().phase();
  transfer.frame = frame;
  transfer.parked_for = discards_for;
  transfer.discard = discards_for != nullptr;
  transfer.prefetch = priority == Priority::prefetch;
  transfer.stock = priority == Priority::background;
  transfer.pages = pages;
  transfer.shows = shows;
  transfer.at_home = priority == Priority::room && has_home(ref, frame);
  transfer.topping_up = directory_.at(ref).parts != 0;
  prefetches_ += transfer.prefetch ? 1 : 0;
  word.set_phase(Phase::incoming);
  assert(space == kHost || directory_.word(kHost, ref).load().booked());
  transfer.source = static_cast<std::uint8_t>(directory_.readable_elsewhere(ref, space));
  if (transfer.discard) {
    transfer.source = kNoSpace;
    transfer.clear =
        directory_.mapped(ref);  // A touch sees the frame before it is granted, or undone.
  } else if (transfer.source == kNoSpace) {
    // A private extent that was written is in a slot, and no longer in the file.
    const Extent& extent = directory_.at(ref);
    const bool adopted = directory_.record_of(ref).file != 0 && !extent.has_slot;
    transfer.reading = adopted || extent.has_slot;
    transfer.clear = !transfer.reading && !transfer.stock;  // The next owner clears it.
    transfer.slot_tier = adopted ? files_ : block_;
    transfer.slot = adopted ? directory_.slot_in_file(ref) : extent.slot;
    if (slot_pages_of(transfer) != nullptr && pages == 0) {
      set_range(transfer, 0, directory_.bytes_of(ref));
    }
  }
  transfer.stage = Transfer::Stage::staging;
  continue_promote(transfer);
}

void TransferEngine::continue_promote(Transfer& transfer) {
  AddressableTier& tier = *memories_[transfer.space].tier;
  if (transfer.pages != 0) {
    read_parts(transfer);
    return;
  }
  if (transfer.stage == Transfer::Stage::staging) {
    const bool from_device = transfer.source != kNoSpace && transfer.source != kHost;
    const bool by_staging =
        transfer.reading ? !goes_direct(transfer) : from_device && !by_peer(transfer);
    if (by_staging && !tier.host_addressable() && !take_staging(transfer)) {
      return;  // In the queue for it.
    }
    transfer.stage = Transfer::Stage::prepare;
  }
  if (transfer.stage == Transfer::Stage::prepare) {
    transfer.job.data = tier.host_addressable() ? tier.landing(transfer.frame, window_of(transfer))
                        : transfer.staging      ? bounce_.data(transfer.staging)
                                                : nullptr;
    const JobStep steps =
        (tier.needs_populate(transfer.frame) || transfer.clear ? kPopulate : JobStep{0}) |
        (transfer.clear ? kClear : JobStep{0}) | (transfer.shows ? kShow : JobStep{0});
    transfer.stage = transfer.reading ? Transfer::Stage::read : Transfer::Stage::land;
    if (steps != 0) {
      submit_job(transfer, steps);
      return;
    }
  }
  if (transfer.stage == Transfer::Stage::read) {
    queue_io(transfer);
    return;
  }
  land(transfer);
}

// From one device straight to another.
bool TransferEngine::by_peer(const Transfer& transfer) const {
  return transfer.source != kNoSpace && transfer.source != kHost && !transfer.by_host &&
         memories_[transfer.space].tier->reaches(*memories_[transfer.source].tier);
}

// The bytes are where they landed, or come from another space: check, copy, make them appear.
void TransferEngine::land(Transfer& transfer) {
  if (transfer.pages != 0) {
    land_parts(transfer);
    return;
  }
  AddressableTier& tier = *memories_[transfer.space].tier;
  const Extent& extent = directory_.at(transfer.ref);
  JobStep steps = 0;
  if (transfer.reading) {
    steps |= spreads(transfer);
    if (extent.sums != nullptr && options_.checksums) {
      transfer.job.sums = extent.sums;
      const Checksums::Hash* const blocks = extent.sums->blocks;
      const Checksums::Hash* const end = blocks + extent.sums->count;
      const bool all_seen = std::find(blocks, end, Checksums::Hash{}) == end;
      steps |= all_seen ? kVerify : kVerify | kHash;  // A gather has seen some blocks of a file.
    } else if (transfer.slot_tier == files_ && options_.checksums) {
      // First read of an adopted file: what is seen now is what must be seen later.
      transfer.sums =
          Checksums::make(directory_.bytes_of(transfer.ref), checksum_block(transfer.ref));
      transfer.job.sums = transfer.sums;
      steps |= transfer.sums != nullptr ? kHash : JobStep{0};
    }
    steps |= tier.host_addressable() ? JobStep{0} : kLockPages | kCopyIn;
  } else if (transfer.source != kNoSpace) {
    if (!start_copy(transfer, transfer.source)) {
      await_writers(transfer);
      return;
    }
    if (tier.host_addressable() && transfer.mapped) {
      transfer.job.data =
          directory_.window_at(transfer.ref, transfer.space);  // Copied again, into the window.
    }
    const bool peer = by_peer(transfer);
    // A frame that goes to a window next is not locked, because it could not move.
    steps |= peer ? kCopyPeer : window_of(transfer) != nullptr ? JobStep{0} : kLockPages;
    if (transfer.source != kHost) {
      steps |= peer ? JobStep{0} : kCopyOut;
      transfer.job.other_tier = memories_[transfer.source].tier;
      transfer.job.other = directory_.frame(transfer.source, transfer.ref);
    } else {
      transfer.job.data = directory_.address(transfer.ref).load(std::memory_order_relaxed);
      steps |= takes_source_home(transfer) ? kTakeHome : JobStep{0};
    }
    // Between devices that do not reach each other by the staging.
    steps |= tier.host_addressable() || peer ? JobStep{0} : kCopyIn;
  }
  transfer.job.host = transfer.staging              ? bounce_.frame(transfer.staging)
                      : tier.host_addressable()     ? transfer.frame
                      : transfer.source != kNoSpace ? directory_.frame(kHost, transfer.ref)
                                                    : FrameId{};
  if (window_of(transfer) != nullptr && !transfer.mapped) {
    steps |= transfer.source == kNoSpace
                 ? (directory_.mapped(transfer.ref) ? kRestore : kMap)
                 : JobStep{0};  // A copied extent is mapped when the copy is known to be good.
  }
  transfer.stage = Transfer::Stage::land;
  if (steps == 0) {
    landed(transfer);
    return;
  }
  submit_job(transfer, steps);
}

void TransferEngine::landed(Transfer& transfer) {
  if (transfer.pages != 0) {
    publish_parts(transfer);
    return;
  }
  if (transfer.source != kNoSpace && !transfer.mapped) {
    if (!directory_.word(transfer.source, transfer.ref).load().unwritten()) {
      await_writers(transfer);  // Written under the copy.
      return;
    }
    if (window_of(transfer) != nullptr) {
      transfer.mapped = true;
      submit_job(transfer, kMap);
      return;
    }
  }
  transfer.mapped = window_of(transfer) != nullptr;
  if (!transfer.discard) {
    publish(transfer);
    return;
  }
  transfer.stage = Transfer::Stage::parked;
  if (transfer.parked_for == nullptr) {
    undo_promote(transfer, nullptr);  // The request that wanted to overwrite it has ended.
    return;
  }
  extent_changed(transfer.ref, transfer.space);
}

// Frames of which views show windows have, but where there is no other memory, addresses of their
// own, too: at home, where they can be page-locked, and where no view looks.
bool TransferEngine::has_home(ExtentRef ref, FrameId frame) const {
  std::byte* const at = directory_.window_at(ref, kHost);
  return at != nullptr && !directory_.mapped(ref) &&
         memories_[kHost].tier->landing(frame, at) != at;
}

// A source without views goes home before it is copied. It stays there for the next copy, until a
// request wants a view.
bool TransferEngine::takes_source_home(Transfer& transfer) {
  const FrameId frame = directory_.frame(kHost, transfer.ref);
  transfer.takes_home =
      has_home(transfer.ref, frame) && directory_.word(kHost, transfer.ref).try_at_home();
  transfer.job.host_at = directory_.window_at(transfer.ref, kHost);
  return transfer.takes_home;
}

void TransferEngine::source_taken_home(Transfer& transfer) {
  if (!std::exchange(transfer.takes_home, false)) {
    return;
  }
  if (transfer.job.taken_home) {
    directory_.address(transfer.ref)
        .store(transfer.job.data, std::memory_order_relaxed);  // Only the mover uses it.
  } else {
    directory_.word(kHost, transfer.ref).clear_at_home();
  }
}

// The frame has come there from its home.
void TransferEngine::to_window(ExtentRef ref) {
  directory_.address(ref).store(directory_.window_at(ref, kHost), std::memory_order_relaxed);
  directory_.word(kHost, ref).clear_at_home();
}

// The source is written, or was written under the copy: it is copied again once it has no writer. A
// kernel may write for long, so other transfers get the staging.
void TransferEngine::await_writers(Transfer& transfer) {
  if (transfer.retreats) {
    undo_promote(transfer, nullptr);  // It is in use again.
    return;
  }
  give_staging(transfer);
  transfer.arriving = 0;  // No stream was let in: it could have written.
  transfer.stage = Transfer::Stage::recopy;
  recopies_.push_back(transfer.job.transfer);
}

void TransferEngine::serve_recopies() {
  Vector<std::uint32_t> waiting;
  waiting.swap(recopies_);
  for (const std::uint32_t at : waiting) {
    Transfer& transfer = transfers_[at];
    if (directory_.word(transfer.source, transfer.ref).load().has_writer()) {
      recopies_.push_back(at);
    } else if (memories_[transfer.space].tier->host_addressable()) {
      land(transfer);
    } else {
      transfer.stage = Transfer::Stage::staging;
      continue_promote(transfer);
    }
  }
}

// Where views find the bytes. To be published by the phase.
void TransferEngine::give_place(const Transfer& transfer) {
  directory_.frame(transfer.space, transfer.ref) = transfer.frame;
  if (transfer.space == kHost) {
    std::byte* const at = window_of(transfer);
    directory_.address(transfer.ref)
        .store(at != nullptr ? at : memories_[kHost].tier->landing(transfer.frame, nullptr),
               std::memory_order_relaxed);
    if (transfer.at_home) {
      directory_.word(kHost, transfer.ref).set_at_home();
    }
  }
}

void TransferEngine::give_place(const Request& request, ExtentRef ref) {
  if (const Transfer* const parked = parked_for(request, ref)) {
    give_place(*parked);
  }
}

void TransferEngine::publish_parked(const Request& request, ExtentRef ref) {
  if (parked_for(request, ref) != nullptr) {
    publish(transfers_[directory_.at(ref).transfer - 1]);
  }
}

void TransferEngine::unpark(const Request& request, ExtentRef ref) {
  if (parked_for(request, ref) == nullptr) {
    return;
  }
  Transfer& transfer = transfers_[directory_.at(ref).transfer - 1];
  transfer.parked_for = nullptr;
  if (transfer.stage == Transfer::Stage::parked) {
    undo_promote(transfer, nullptr);
  }
}

void TransferEngine::publish(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  ExtentWord& word = directory_.word(space, ref);
  Phase phase = transfer.stock ? Phase::vacant : Phase::exclusive;
  // The slot's bytes are not these, or not for long.
  bool dirty = transfer.discard || directory_.mapped(ref) || directory_.at(ref).zeros != 0;
  if (transfer.took_over) {
    dirty = directory_.word(transfer.source, ref).load().dirty();
  } else if (transfer.source != kNoSpace) {
    ExtentWord& source = directory_.word(transfer.source, ref);
    if (!source.try_share()) {
      // Written between the copy and now. The mapping stays; only the bytes are copied again.
      await_writers(transfer);
      return;
    }
    phase = Phase::shared;
    dirty = source.load().dirty();
  }
  if (transfer.retreats) {
    memories_[transfer.source].exit_backoff.worked();
  }
  Extent& extent = directory_.at(ref);
  give_place(transfer);
  ExtentWord& host = directory_.word(kHost, ref);
  if (space != kHost && host.load().phase() == Phase::lost) {
    host.set_phase(Phase::none);  // Overwritten: there are bytes again, if not here.
  }
  dirty || transfer.written ? word.set_dirty() : word.clear_dirty();
  if (transfer.sums != nullptr) {
    Checksums::destroy(extent.sums);
    extent.sums = std::exchange(transfer.sums, nullptr);
  }
  extent.bad_once = false;
  extent.zeros = 0;
  prefetch_used(ref, memories_[kHost]);  // The request that takes it to a device uses it.
  extent.prefetched =
      transfer.prefetch && space == kHost && !directory_.mapped(ref);  // No use is seen.
  memories_[space].unused_prefetched += extent.prefetched ? directory_.bytes_of(ref) : 0;
  word.set_phase(phase);
  if (std::exchange(transfer.took_over, false)) {
    finish_evict(ref, transfer.source, directory_.frame(transfer.source, ref), transfer.begun_ns);
  }
  journal_.count(transfer.prefetch ? &Stats::prefetched : &Stats::promoted,
                 transfer.reading ? io_bytes(transfer) : 0);
  if (transfer.direct) {
    journal_.note_direct(transfer.space, false, directory_.bytes_of(ref));
  }
  if (space == kHost) {
    journal_.count_mapped(transfer.job.mechanism);
  }
  (void)word.take_referenced();
  recency_for(space, ref).inserted(ref, directory_.bytes_of(ref));
  const bool stock = transfer.stock;
  transfer.outcome = Transfer::Outcome::moved;
  end_transfer(transfer);
  if (stock) {
    stock_ended(ref, true);
  }
  extent_changed(ref, space);
}

// The spare buffer is there, or could not be had.
void TransferEngine::stock_ended(ExtentRef ref, bool came) {
  if (!stock_.end(ref, came)) {
    (void)leave(ref, kHost, true);
  }
}

void TransferEngine::promote_failed(Transfer& transfer, Status status) {
  if (transfer.space != kHost && (transfer.job.steps & kPopulate) != 0 &&
      status.code() == Code::no_capacity) {
    memories_[transfer.space].shrink_to_actual(directory_.bytes_of(transfer.ref), status, now_);
    undo_promote(transfer, nullptr);  // Its waiters look for room again.
    return;
  }
  if (transfer.source != kNoSpace && memories_[transfer.source].tier->lost()) {
    undo_promote(transfer, nullptr);  // Its waiters look for another copy.
    return;
  }
  if ((transfer.job.steps & kCopyPeer) != 0 && transfer.arriving == 0 &&
      !memories_[transfer.space].tier->lost()) {
    transfer.by_host = true;
    transfer.stage = Transfer::Stage::staging;
    continue_promote(transfer);
    return;
  }
  journal_.count(&Stats::io_errors);
  transfer.outcome = Transfer::Outcome::failed;
  journal_.note_end(transfer);
  transfer.outcome = Transfer::Outcome::undone;
  if (transfer.retreats) {
    memories_[transfer.source].exit_backoff.failed(now_);
    block_slots_.note_error(status.info() != nullptr ? *status.info() : ErrorInfo{});
  }
  undo_promote(transfer, &status);
}

// The extent goes back to where it was. `error`, if any, reaches its waiters.
void TransferEngine::undo_promote(Transfer& transfer, const Status* error) {
  if (transfer.pages != 0) {
    undo_parts(transfer, error);
    return;
  }
  if (transfer.arriving != 0 && abandon_promote(transfer, error)) {
    return;
  }
  std::byte* at = window_of(transfer);
  const bool landed_in_window =
      at != nullptr && memories_[transfer.space].tier->landing(transfer.frame, at) == at;
  if (transfer.mapped || landed_in_window) {
    transfer.mapped = false;
    transfer.kind = Transfer::Kind::evict;  // The frame must leave its window first.
    transfer.undone = true;
    transfer.undo_error =
        error != nullptr && error->info() != nullptr ? *error->info() : ErrorInfo{};
    prefetches_ -= transfer.prefetch ? 1 : 0;
    transfer.prefetch = false;
    transfer.stage = Transfer::Stage::unmap;
    directory_.word(transfer.space, transfer.ref).set_phase(Phase::outgoing);
    submit_job(transfer, kUnmap);
    return;
  }
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  memories_[space].give_frame(transfer.frame, directory_.bytes_of(ref));
  directory_.word(space, ref).set_phase(transfer.origin);
  const bool stock = transfer.stock;
  const Ended::Failed failed = failure_of(transfer);
  end_transfer(transfer);
  if (stock) {
    stock_ended(ref, false);
  }
  extent_changed(ref, space, error != nullptr ? error->clone() : Status(), failed);
}

}  // namespace tiermem

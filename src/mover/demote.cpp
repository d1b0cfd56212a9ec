// Demote: an extent's bytes go to a slot; the frame stays until evict takes it. Each function is
// one step of the transfer's life; `stage` says which comes next. The stepping thread only; never
// waits.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "mover/transfer_engine.hpp"

namespace tiermem {
bool TransferEngine::start_demote(ExtentRef ref, unsigned space, bool evict_after,
                                  Priority priority) {
  if (!can_write(ref)) {
    return false;
  }
  if (directory_.mapped(ref)) {
    return start_withdraw(ref, space, evict_after, priority);
  }
  const ExtentBits bits = directory_.word(space, ref).book();
  if (!bits.readable() || bits.writers() != 0 ||
      !block_slots_.may_wear(directory_.bytes_of(ref), now_)) {
    return false;
  }
  Transfer& transfer = new_transfer(Transfer::Kind::demote, ref, space, priority);
  transfer.evict_after = evict_after;
  transfer.wear = static_cast<std::int64_t>(directory_.bytes_of(ref));
  transfer.slot_tier = block_;
  transfer.frame = directory_.frame(space, ref);
  if (evict_after) {
    set_freeing(transfer, directory_.bytes_of(ref));
  }
  measure(transfer);
  return directory_.at(ref).transfer != 0;  // Without a slot the demote has failed.
}

void TransferEngine::find_slot(Transfer& transfer) {
  if (transfer.whole_again) {
    find_slot_for_whole(transfer);
    return;
  }
  transfer.stage = Transfer::Stage::slot;
  Extent& extent = directory_.at(transfer.ref);
  if (!extent.has_slot) {
    const SlotId slot = new_slot(transfer);
    if (!slot.valid()) {
      return;
    }
    extent.slot = slot;
    extent.slot_stamp = block_slots_.stamp();
    extent.has_slot = true;
    extent.slot_pages = std::exchange(transfer.slot_pages, nullptr);
    Checksums::destroy(extent.sums);  // A private extent has those of the file.
    extent.sums = nullptr;
  }
  transfer.rewrites = extent.has_slot && !extent.slot_stale && extent.sums != nullptr;
  set_range(transfer, 0, directory_.bytes_of(transfer.ref));
  extent.slot_stale = transfer.pages == 0;  // From here until the write is published.
  transfer.slot = extent.slot;
  transfer.stage = Transfer::Stage::staging;
  seal(transfer);
}

// Allocates a slot for the stored pages of the extent. If the tier is full, slots of resident bytes
// give way. Returns an invalid slot if the transfer waits for the tier to grow, or has failed.
SlotId TransferEngine::new_slot(Transfer& transfer) {
  block_slots_.retry_degraded(now_);
  Result<SlotId> slot = block_slots_.allocate(slot_bytes_of(transfer), transfer.avoid);
  while (slot.code() == Code::no_capacity && next_slot_gives_way()) {
    slot = block_slots_.allocate(slot_bytes_of(transfer), transfer.avoid);
  }
  if (slot.ok()) {
    return *slot;
  }
  if (slot.code() == Code::busy) {
    block_slots_.grow(transfer.job.transfer, slot_bytes_of(transfer));
  } else {
    demote_failed(transfer, std::move(slot).status());
  }
  return {};
}

// Bytes in memory that I/O can read are hashed beside the write. The result is published only if no
// writer came between the start of the first and the end of the last, so both saw the same bytes. A
// device's memory is copied to staging first.
void TransferEngine::seal(Transfer& transfer) {
  AddressableTier& tier = *memories_[transfer.space].tier;
  // The pages of a new slot were measured after the copy began, and may have changed since then: it
  // must not begin anew.
  if (transfer.copied == kNoSpace || directory_.at(transfer.ref).slot_pages == nullptr) {
    (void)start_copy(transfer, transfer.space);  // Beside a writer: it is written down in vain.
  }
  if (tier.host_addressable()) {
    transfer.job.data = transfer.withdrawn
                            ? tier.landing(transfer.frame, nullptr)
                            : directory_.address(transfer.ref).load(std::memory_order_relaxed);
    write_and_hash(transfer);
    return;
  }
  if (goes_direct(transfer)) {
    transfer.stage = Transfer::Stage::write;
    queue_io(transfer);
    return;
  }
  if (!take_staging(transfer)) {
    return;
  }
  (void)start_copy(transfer, transfer.space);
  transfer.job.host = bounce_.frame(transfer.staging);
  transfer.job.data = bounce_.data(transfer.staging);
  transfer.job.other_tier = &tier;
  transfer.job.other = transfer.frame;
  transfer.stage = Transfer::Stage::copy;
  submit_job(transfer, kLockPages | kCopyOut);
}

void TransferEngine::write_and_hash(Transfer& transfer) {
  const bool hashes = options_.checksums && !directory_.has_flag(transfer.ref, kNoChecksum);
  if (hashes && transfer.sums == nullptr) {
    transfer.sums =
        Checksums::make(directory_.bytes_of(transfer.ref), checksum_block(transfer.ref));
    if (transfer.sums != nullptr && transfer.pages != 0) {
      transfer.sums->copy(*directory_.at(transfer.ref).sums);
    }
  }
  if (transfer.pages != 0 && transfer.sums == nullptr) {
    demote_failed(transfer, fail(Code::no_capacity, "allocation of checksums failed"));
    return;
  }
  const bool first_hash = transfer.rewrites && transfer.sums != nullptr;
  transfer.stage = first_hash ? Transfer::Stage::hash : Transfer::Stage::write;
  if (!first_hash) {
    queue_io(transfer);
  }
  if (transfer.sums != nullptr) {
    transfer.job.sums = transfer.sums;
    transfer.hashing = true;
    submit_job(transfer, kHash);
  }
}

// The bytes of an extent that has a slot are hashed. Only changed blocks are written, from the
// first that differs to the last. None differs if a program wrote the same bytes again.
void TransferEngine::write_changed(Transfer& transfer) {
  if (transfer.pages != 0) {
    write_changed_parts(transfer);
    return;
  }
  if (transfer.recalled) {
    directory_.at(transfer.ref).slot_stale = false;  // Nothing was written into it.
    map_back(transfer);
    return;
  }
  const Checksums& before = *directory_.at(transfer.ref).sums;
  const std::uint32_t first = transfer.sums->first_unlike(before);
  Watching::note(directory_.at(transfer.ref).unwritten, first != before.count);
  if (first == before.count) {
    set_range(transfer, 0, 0);
    written(transfer);
    return;
  }
  if (block_slots_.is_shared(directory_.at(transfer.ref).slot_stamp) ||
      directory_.at(transfer.ref).slot_pages != nullptr) {
    // A child of fork reads the slot as it is, or it may lack pages that have changed: all of the
    // extent goes to another.
    give_up_slot(directory_.at(transfer.ref));
    measure(transfer);
    return;
  }
  const std::uint32_t last = transfer.sums->last_unlike(before);
  set_range(transfer, std::uint64_t{first} * before.block_bytes,
            std::uint64_t{last - first + 1} * before.block_bytes);
  transfer.stage = Transfer::Stage::write;
  queue_io(transfer);
}

// The write has ended, with or without success, and so has the hash.
void TransferEngine::write_done(Transfer& transfer, const SlotCompletion& completion) {
  if (completion.code == Code::ok) {
    written(transfer);
    return;
  }
  Status status = io_error(transfer, completion.code, completion.native, completion.device,
                           completion.device_offset);
  block_slots_.write_failed(completion.device, status.message(), now_);
  if (transfer.pages != 0) {
    parts_not_written(transfer, std::move(status));
    return;
  }
  // The slot is whole nowhere; the bytes are in the frame. Another device, or another place of the
  // same one.
  const std::uint64_t slot_bytes = slot_bytes_of(transfer.ref);
  give_up_slot(directory_.at(transfer.ref));
  if (transfer.attempts++ < 2) {
    journal_.count(&Stats::io_retries);
    transfer.avoid |= std::uint64_t{1} << (completion.device % 64);
    if (block_slots_.is_full(slot_bytes, transfer.avoid)) {
      transfer.avoid = 0;
    }
    block_slots_.note_error(*status.info());
    give_staging(transfer);
    measure(transfer);
    return;
  }
  demote_failed(transfer, std::move(status));
}

void TransferEngine::written(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  Extent& extent = directory_.at(ref);
  if (transfer.length != 0) {
    block_slots_.write_worked(transfer.slot);
  }
  const std::uint64_t bytes = transfer.length != 0 ? io_bytes(transfer) : 0;
  if (transfer.to_write != 0) {
    journal_.count(&Stats::demoted, bytes);
    write_next_parts(transfer);
    return;
  }
  if (transfer.whole_again) {
    whole_written(transfer);
  }
  block_slots_.forget_error(now_);
  const bool evict_after = transfer.evict_after;
  const Priority priority = transfer.priority;
  const Journal::ReasonScope leaving(journal_, transfer.reason);
  transfer.outcome = Transfer::Outcome::moved;
  if (transfer.withdrawn) {
    extent.slot_stale = false;
    Checksums::destroy(extent.sums);
    extent.sums = std::exchange(transfer.sums, nullptr);
    journal_.count(&Stats::demoted, bytes);
    transfer.evict_after ? gone(transfer) : map_back(transfer);
    return;
  }
  if (directory_.word(space, ref).publish_clean()) {
    for (unsigned other = 0; other < directory_.spaces(); ++other) {
      if (other != space && directory_.readable(ref, other)) {
        directory_.word(other, ref).clear_dirty();  // A shared extent has no writers.
      }
    }
    extent.slot_stale = false;
    Checksums::destroy(extent.sums);
    extent.sums = std::exchange(transfer.sums, nullptr);
    journal_.count(&Stats::demoted, bytes);
    if (transfer.direct) {
      journal_.note_direct(transfer.space, true, bytes);
    }
    end_transfer(transfer);
    if (evict_after && !start_evict(ref, space, priority)) {
      memories_[space].recency.rejected(ref);  // It was pinned or held: a candidate again.
    }
  } else {
    end_transfer(transfer);  // It was written: still dirty, and not the first victim.
    memories_[space].recency.rejected(ref);
  }
  if (extent.transfer == 0) {
    extent_changed(ref, space);
  }
}

void TransferEngine::demote_failed(Transfer& transfer, Status status) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  block_slots_.note_error(
      status.info() != nullptr
          ? *status.info()
          : error_info(status.code(), "writing down failed: {}", code_name(status.code())));
  journal_.count(&Stats::io_errors);
  transfer.outcome = Transfer::Outcome::failed;
  if (space != kHost && transfer.stage == Transfer::Stage::copy) {
    memories_[space].exit_backoff.failed(now_);  // The block tier has not been asked.
  } else if (transfer.stage == Transfer::Stage::read || transfer.stage == Transfer::Stage::copy) {
    // The rest of it could not be read, to be written with it. All others can leave.
    leaves_later(ref);
    rereads_at_ = stuck_until_;
  } else {
    const bool no_slot = transfer.stage == Transfer::Stage::slot;
    block_slots_.pause(now_, no_slot);
    if (no_slot && transfer.whole_again) {
      // It has a slot, which lacks pages that have changed: without another one it cannot leave.
      directory_.at(ref).stuck = true;
      stuck_until_ = std::max(stuck_until_, block_slots_.paused_until());
      lacks_slot_until_ = stuck_until_;
    }
  }
  if (transfer.withdrawn) {
    transfer.undo_error = block_slots_.last_error();
    keep(transfer);
    map_back(transfer);
    return;
  }
  end_transfer(transfer);
  memories_[space].recency.rejected(ref);
  extent_changed(ref, space, std::move(status), Ended::Failed::to_leave);
}

}  // namespace tiermem

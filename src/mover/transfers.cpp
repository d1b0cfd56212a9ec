// Transfers: promote, demote, evict, from start to last completion. Each function is one step of a
// transfer's life; `stage` says which comes next.
#include <algorithm>
#include <system_error>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

Transfer& Mover::new_transfer(Transfer::Kind kind, ExtentRef ref, unsigned space, Priority priority) {
  std::uint32_t at = 0;
  if (!free_transfers_.empty()) {
    at = free_transfers_.back();
    free_transfers_.pop_back();
  } else {
    at = static_cast<std::uint32_t>(transfers_.size());
    transfers_.emplace_back();
  }
  Transfer& transfer = transfers_[at];
  transfer = Transfer{};
  transfer.kind = kind;
  transfer.ref = ref;
  transfer.space = static_cast<std::uint8_t>(space);
  transfer.priority = priority;
  transfer.job.transfer = at;
  residency_.extents.at(ref).transfer = at + 1;
  ++transfers_live_;
  return transfer;
}

void Mover::end_transfer(Transfer& transfer) {
  give_staging(transfer);
  Checksums::destroy(transfer.sums);
  transfer.sums = nullptr;
  spaces_[transfer.space].freeing -= transfer.freeing;
  prefetches_ -= transfer.kind == Transfer::Kind::promote && transfer.prefetch ? 1 : 0;
  transfer.kind = Transfer::Kind::idle;
  residency_.extents.at(transfer.ref).transfer = 0;
  free_transfers_.push_back(transfer.job.transfer);
  --transfers_live_;
}

void Mover::submit_job(Transfer& transfer, JobStep steps) {
  Job& job = transfer.job;
  job.steps = steps;
  job.tier = spaces_[transfer.space].tier;
  job.frame = transfer.frame;
  job.at = window_at(transfer.ref, transfer.space);
  job.bytes = bytes_of(transfer.ref);
  hands_.submit(&job);
}

// ---- Promote -----------------------------------------------------------------------------------

void Mover::start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority, Request* discards_for,
                          bool prefetch) {
  Transfer& transfer = new_transfer(Transfer::Kind::promote, ref, space, priority);
  ExtentWord& word = residency_.extents.word(space, ref);
  transfer.origin = word.load().phase();
  transfer.frame = frame;
  transfer.parked_for = discards_for;
  transfer.discard = discards_for != nullptr;
  transfer.prefetch = prefetch;
  prefetches_ += prefetch ? 1 : 0;
  word.set_phase(Phase::incoming);
  transfer.source = static_cast<std::uint8_t>(readable_elsewhere(ref, space));
  if (transfer.discard) {
    transfer.source = kNoSpace;
  } else if (transfer.source == kNoSpace) {
    const bool adopted = record_of(ref).file != 0;
    transfer.reading = adopted || residency_.extents.at(ref).has_slot;
    transfer.clear = !transfer.reading;
    transfer.channel = adopted ? files_ : block_;
    transfer.slot = adopted ? SlotId{record_of(ref).file - 1 +
                                     (ref - record_of(ref).first.load(std::memory_order_relaxed)) *
                                         (bytes_of(ref) / kSmallestExtent)}
                            : residency_.extents.at(ref).slot;
  }
  transfer.stage = Transfer::Stage::staging;
  continue_promote(transfer);
}

void Mover::continue_promote(Transfer& transfer) {
  AddressableTier& tier = *spaces_[transfer.space].tier;
  if (transfer.stage == Transfer::Stage::staging) {
    if (transfer.reading && !tier.host_addressable() && !take_staging(transfer)) {
      return;  // In the queue for it.
    }
    transfer.stage = Transfer::Stage::prepare;
  }
  if (transfer.stage == Transfer::Stage::prepare) {
    transfer.job.data = tier.host_addressable() ? tier.landing(transfer.frame, window_at(transfer.ref, transfer.space))
                        : transfer.staging != 0
                            ? spaces_[kHost].tier->landing(staging_[transfer.staging - 1].frame, nullptr)
                            : nullptr;
    const JobStep steps = (tier.needs_populate(transfer.frame) || transfer.clear ? kPopulate : JobStep{0}) |
                                (transfer.clear ? kClear : JobStep{0});
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

// The bytes are where they landed, or come from another space: check, copy, make them appear.
void Mover::land(Transfer& transfer) {
  AddressableTier& tier = *spaces_[transfer.space].tier;
  const Extent& extent = residency_.extents.at(transfer.ref);
  JobStep steps = 0;
  if (transfer.reading) {
    if (extent.sums != nullptr && options_.checksums) {
      transfer.job.sums = extent.sums;
      steps |= kVerify;
    } else if (record_of(transfer.ref).file != 0 && options_.checksums) {
      // First read of an adopted file: what is seen now is what must be seen later.
      transfer.sums = Checksums::make(bytes_of(transfer.ref), options_.checksum_block_bytes);
      transfer.job.sums = transfer.sums;
      steps |= transfer.sums != nullptr ? kHash : JobStep{0};
    }
    steps |= tier.host_addressable() ? JobStep{0} : kCopyIn;
  } else if (transfer.source != kNoSpace) {
    transfer.epoch = residency_.extents.word(transfer.source, transfer.ref).load().epoch();
    if (tier.host_addressable()) {
      if (transfer.mapped) {
        transfer.job.data = window_at(transfer.ref, transfer.space);  // Copied again, into the window.
      }
      steps |= kCopyOut;
      transfer.job.other_tier = spaces_[transfer.source].tier;
      transfer.job.other = residency_.extents.frame(transfer.source, transfer.ref);
    } else {
      steps |= kCopyIn;
      transfer.job.data = residency_.extents.address(transfer.ref).load(std::memory_order_relaxed);
    }
  }
  if (window_at(transfer.ref, transfer.space) != nullptr && !transfer.mapped) {
    steps |= transfer.source == kNoSpace ? kMap : JobStep{0};  // A copied extent is mapped when the copy is known to be good.
  }
  transfer.stage = Transfer::Stage::land;
  if (steps == 0) {
    landed(transfer);
    return;
  }
  submit_job(transfer, steps);
}

void Mover::landed(Transfer& transfer) {
  if (transfer.source != kNoSpace && !transfer.mapped) {
    const ExtentBits source = residency_.extents.word(transfer.source, transfer.ref).load();
    if (source.writers() != 0 || source.epoch() != transfer.epoch) {
      transfer.stage = Transfer::Stage::recopy;  // Written under the copy: again, when the writers are gone.
      recopies_.push_back(transfer.job.transfer);
      return;
    }
    if (window_at(transfer.ref, transfer.space) != nullptr) {
      transfer.mapped = true;
      submit_job(transfer, kMap);
      return;
    }
  }
  transfer.mapped = window_at(transfer.ref, transfer.space) != nullptr;
  if (!transfer.discard) {
    publish(transfer);
    return;
  }
  transfer.stage = Transfer::Stage::parked;
  if (transfer.parked_for == nullptr) {
    undo_promote(transfer, nullptr);  // Whoever wanted to overwrite it has given up.
    return;
  }
  extent_changed(transfer.ref, transfer.space, nullptr);
}

// Copies whose source was written meanwhile: again, once nobody writes.
void Mover::serve_recopies() {
  std::vector<std::uint32_t> waiting;
  waiting.swap(recopies_);
  for (const std::uint32_t at : waiting) {
    Transfer& transfer = transfers_[at];
    if (residency_.extents.word(transfer.source, transfer.ref).load().writers() == 0) {
      land(transfer);
    } else {
      recopies_.push_back(at);
    }
  }
}

void Mover::publish(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  ExtentWord& word = residency_.extents.word(space, ref);
  Phase phase = Phase::exclusive;
  bool dirty = transfer.discard;  // The slot's bytes are not these.
  if (transfer.source != kNoSpace) {
    ExtentWord& source = residency_.extents.word(transfer.source, ref);
    if (!source.try_share(transfer.epoch)) {
      // Written between the copy and now. The mapping stays; only the bytes are copied again.
      transfer.stage = Transfer::Stage::recopy;
      recopies_.push_back(transfer.job.transfer);
      return;
    }
    phase = Phase::shared;
    dirty = source.load().dirty();
  }
  Extent& extent = residency_.extents.at(ref);
  residency_.extents.frame(space, ref) = transfer.frame;
  if (space == kHost) {
    std::byte* at = window_at(ref, space);
    residency_.extents.address(ref).store(at != nullptr ? at : spaces_[space].tier->landing(transfer.frame, nullptr),
                                          std::memory_order_relaxed);  // Published by set_phase below.
  }
  dirty ? word.set_dirty() : word.clear_dirty();
  if (transfer.sums != nullptr) {
    Checksums::destroy(extent.sums);
    extent.sums = std::exchange(transfer.sums, nullptr);
  }
  extent.bad_once = false;
  extent.prefetched = transfer.prefetch && space == kHost;
  spaces_[space].unused_prefetched += extent.prefetched ? bytes_of(ref) : 0;
  word.set_phase(phase);
  (transfer.prefetch ? stats_.prefetched : stats_.promoted) += transfer.reading ? bytes_of(ref) : 0;
  if (space == kHost) {
    switch (transfer.job.mechanism) {
      case Mechanism::uffd_move:
        ++stats_.moved_by_uffd;
        break;
      case Mechanism::remap:
        ++stats_.moved_by_remap;
        break;
      default:
        ++stats_.moved_in_place;
    }
  }
  (void)word.take_referenced();
  recency_for(space, ref).inserted(ref, bytes_of(ref));
  end_transfer(transfer);
  extent_changed(ref, space, nullptr);
}

void Mover::promote_failed(Transfer& transfer, Status status) {
  ++stats_.io_errors;
  undo_promote(transfer, &status);
}

// The extent goes back to where it was. `error`, if any, reaches those who wait for it.
void Mover::undo_promote(Transfer& transfer, const Status* error) {
  std::byte* at = window_at(transfer.ref, transfer.space);
  const bool landed_in_window = at != nullptr && spaces_[transfer.space].tier->landing(transfer.frame, at) == at;
  if (transfer.mapped || landed_in_window) {
    transfer.mapped = false;
    transfer.kind = Transfer::Kind::evict;  // The frame must leave its window first.
    transfer.undone = true;
    transfer.undo_error = error != nullptr && error->info() != nullptr ? *error->info() : ErrorInfo{};
    prefetches_ -= transfer.prefetch ? 1 : 0;
    transfer.prefetch = false;
    transfer.stage = Transfer::Stage::unmap;
    residency_.extents.word(transfer.space, transfer.ref).set_phase(Phase::outgoing);
    submit_job(transfer, kUnmap);
    return;
  }
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  spaces_[space].tier->return_frame(transfer.frame);
  residency_.extents.word(space, ref).set_phase(transfer.origin);
  end_transfer(transfer);
  extent_changed(ref, space, error);
}

// ---- Demote ------------------------------------------------------------------------------------

bool Mover::start_demote(ExtentRef ref, unsigned space, bool evict_after, Priority priority) {
  const ExtentBits bits = residency_.extents.word(space, ref).load();
  if (bits.writers() != 0 || block_ == nullptr || now_ < write_backoff_until_) {
    return false;
  }
  Transfer& transfer = new_transfer(Transfer::Kind::demote, ref, space, priority);
  transfer.evict_after = evict_after;
  transfer.channel = block_;
  transfer.epoch = bits.epoch();
  transfer.frame = residency_.extents.frame(space, ref);
  if (evict_after) {
    transfer.freeing = bytes_of(ref);
    spaces_[space].freeing += transfer.freeing;
  }
  transfer.stage = Transfer::Stage::slot;
  find_slot(transfer);
  return true;
}

void Mover::find_slot(Transfer& transfer) {
  Extent& extent = residency_.extents.at(transfer.ref);
  if (!extent.has_slot) {
    Result<SlotId> slot = block_->allocate(bytes_of(transfer.ref), transfer.avoid);
    if (!slot.ok() && slot.code() == Code::busy) {
      growing_queue_.push_back(transfer.job.transfer);
      if (!growing_) {
        growing_ = true;
        ++housekeeping_;
        grow_ = Job{};
        grow_.transfer = ~std::uint32_t{0};
        grow_.steps = kGrow;
        grow_.bytes = bytes_of(transfer.ref);
        grow_.slots = block_;
        hands_.submit(&grow_);
      }
      return;
    }
    if (!slot.ok()) {
      demote_failed(transfer, std::move(slot).status());
      return;
    }
    extent.slot = *slot;
    extent.has_slot = true;
  }
  extent.slot_stale = true;  // From here until the write is published.
  transfer.slot = extent.slot;
  transfer.stage = Transfer::Stage::staging;
  seal(transfer);
}

void Mover::seal(Transfer& transfer) {
  AddressableTier& tier = *spaces_[transfer.space].tier;
  JobStep steps = 0;
  if (tier.host_addressable()) {
    transfer.job.data = residency_.extents.address(transfer.ref).load(std::memory_order_relaxed);
  } else {
    if (!take_staging(transfer)) {
      return;
    }
    transfer.job.data = spaces_[kHost].tier->landing(staging_[transfer.staging - 1].frame, nullptr);
    transfer.job.other_tier = &tier;
    transfer.job.other = transfer.frame;
    steps |= kCopyOut;
  }
  transfer.epoch = residency_.extents.word(transfer.space, transfer.ref).load().epoch();
  transfer.stage = Transfer::Stage::seal;
  if (options_.checksums && (record_of(transfer.ref).flags & kNoChecksum) == 0) {
    if (transfer.sums == nullptr) {
      transfer.sums = Checksums::make(bytes_of(transfer.ref), options_.checksum_block_bytes);
    }
    transfer.job.sums = transfer.sums;
    steps |= transfer.sums != nullptr ? kHash : JobStep{0};
  }
  if (steps != 0) {
    submit_job(transfer, steps);
  } else {
    transfer.stage = Transfer::Stage::write;
    queue_io(transfer);
  }
}

void Mover::written(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  Extent& extent = residency_.extents.at(ref);
  device_failures_[block_->device_of(transfer.slot) % device_failures_.size()] = 0;
  write_backoff_ns_ = 0;
  last_write_error_ = {};
  const bool evict_after = transfer.evict_after;
  const Priority priority = transfer.priority;
  if (residency_.extents.word(space, ref).publish_clean(transfer.epoch)) {
    for (unsigned other = 0; other < residency_.extents.spaces(); ++other) {
      if (other != space && readable(ref, other)) {
        residency_.extents.word(other, ref).clear_dirty();  // Shared: nobody can have written it since.
      }
    }
    extent.slot_stale = false;
    Checksums::destroy(extent.sums);
    extent.sums = std::exchange(transfer.sums, nullptr);
    stats_.demoted += bytes_of(ref);
    end_transfer(transfer);
    if (evict_after && !start_evict(ref, space, priority)) {
      spaces_[space].recency.rejected(ref);  // Pinned or held meanwhile: a candidate again.
    }
  } else {
    end_transfer(transfer);  // Written meanwhile: still dirty, and no longer the first victim.
    spaces_[space].recency.rejected(ref);
  }
  if (extent.transfer == 0) {
    extent_changed(ref, space, nullptr);
  }
}

void Mover::demote_failed(Transfer& transfer, Status status) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  last_write_error_ = status.info() != nullptr
                          ? *status.info()
                          : error_info(status.code(), "writing down failed: {}", code_name(status.code()));
  ++stats_.io_errors;
  write_backoff_ns_ = std::clamp<std::int64_t>(write_backoff_ns_ * 2, 10'000'000, 1'000'000'000);
  write_backoff_until_ = now_ + write_backoff_ns_;
  end_transfer(transfer);
  spaces_[space].recency.rejected(ref);
  extent_changed(ref, space, &status);
}

// ---- Evict -------------------------------------------------------------------------------------

// Gives up this space's copy, writing it down first where it is the only one. False: not now.
bool Mover::start_evict(ExtentRef ref, unsigned space, Priority priority) {
  Extent& extent = residency_.extents.at(ref);
  const ExtentBits bits = residency_.extents.word(space, ref).load();
  if (extent.transfer != 0 || extent.holds != 0 || !bits.readable() || bits.pinned()) {
    return false;
  }
  if (bits.dirty() && readable_elsewhere(ref, space) == kNoSpace) {
    return start_demote(ref, space, true, priority);
  }
  // Dirty bytes may go only where another copy has them: a writer may come and go before the next line.
  return leave(ref, space, readable_elsewhere(ref, space) != kNoSpace);
}

// The frame goes, whatever becomes of its bytes: the caller knows that they are elsewhere or unwanted.
bool Mover::leave(ExtentRef ref, unsigned space, bool even_dirty) {
  if (residency_.extents.at(ref).transfer != 0 || !residency_.extents.word(space, ref).try_outgoing(even_dirty)) {
    return false;
  }
  const FrameId frame = residency_.extents.frame(space, ref);
  if (window_at(ref, space) == nullptr) {
    finish_evict(ref, space, frame);
    return true;
  }
  Transfer& transfer = new_transfer(Transfer::Kind::evict, ref, space, Priority::room);
  transfer.frame = frame;
  transfer.origin = Phase::none;
  transfer.stage = Transfer::Stage::unmap;
  transfer.freeing = bytes_of(ref);
  spaces_[space].freeing += transfer.freeing;
  submit_job(transfer, kUnmap);
  return true;
}

void Mover::finish_evict(ExtentRef ref, unsigned space, FrameId frame) {
  Extent& extent = residency_.extents.at(ref);
  ExtentWord& word = residency_.extents.word(space, ref);
  spaces_[space].tier->return_frame(frame);
  residency_.extents.frame(space, ref) = {};
  spaces_[space].recency.removed(ref, true);
  stats_.evicted_clean += word.load().dirty() ? 0 : bytes_of(ref);
  if (space == kHost && extent.prefetched) {
    stats_.prefetched_unused += word.load().referenced() ? 0 : bytes_of(ref);
    prefetch_used(ref, spaces_[space]);
  }
  word.clear_dirty();
  word.set_phase(Phase::none);
  settle(ref);
}

// After a copy has gone: the last one of several becomes exclusive, and an extent without any copy that was
// never written down is zero again.
void Mover::settle(ExtentRef ref) {
  unsigned copies = 0;
  unsigned last = 0;
  for (unsigned space = 0; space < residency_.extents.spaces(); ++space) {
    if (readable(ref, space)) {
      ++copies;
      last = space;
    }
  }
  ExtentWord& host = residency_.extents.word(kHost, ref);
  if (copies == 1 && residency_.extents.word(last, ref).load().phase() == Phase::shared) {
    residency_.extents.word(last, ref).set_phase(Phase::exclusive);
  } else if (copies == 0 && !residency_.extents.at(ref).has_slot && record_of(ref).file == 0 &&
             host.load().phase() == Phase::none) {
    host.set_phase(Phase::zero);
  }
}

void Mover::drop_slot(ExtentRef ref) {
  Extent& extent = residency_.extents.at(ref);
  if (extent.has_slot) {
    block_->free(extent.slot);
    extent.has_slot = false;
    extent.slot_stale = false;
  }
  Checksums::destroy(extent.sums);
  extent.sums = nullptr;
}

// ---- Completions and channels --------------------------------------------------------------------

void Mover::job_done(Job& job) {
  if (job.transfer == ~std::uint32_t{0}) {
    --housekeeping_;
    if ((job.steps & kTrim) != 0) {
      for (Space& space : spaces_) {
        if (&job == &space.trim) {
          space.tier->finish_trim();
          space.trimming = false;
          space.freeing -= job.bytes;
        }
      }
      return;
    }
    growing_ = false;
    std::deque<std::uint32_t> waiting;
    waiting.swap(growing_queue_);
    for (const std::uint32_t at : waiting) {
      if (job.status.ok()) {
        find_slot(transfers_[at]);
      } else {
        demote_failed(transfers_[at], job.status.clone());
      }
    }
    return;
  }
  Transfer& transfer = transfers_[job.transfer];
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  switch (transfer.kind) {
    case Transfer::Kind::promote:
      if (job.checksum_bad) {
        ++stats_.checksum_errors;
        Extent& extent = residency_.extents.at(ref);
        const bool adopted = record_of(ref).file != 0;
        if (!extent.bad_once) {
          extent.bad_once = true;  // Perhaps the wire and not the medium: read once more.
          transfer.stage = Transfer::Stage::read;
          queue_io(transfer);
          return;
        }
        extent.bad_once = false;
        const std::uint64_t offset = std::uint64_t{job.bad_block} * job.sums->block_bytes;
        Status status = fail(adopted ? Code::io_error : Code::lost,
                             "buffer '{}', extent {}: the bytes at {} read back from {} are not those {}",
                             record_of(ref).label, ref - record_of(ref).first.load(std::memory_order_relaxed), offset,
                             transfer.channel->device_name(transfer.channel->device_of(transfer.slot)),
                             adopted ? "first read: the file has changed underneath" : "written: lost");
        transfer.origin = adopted ? transfer.origin : (space == kHost ? Phase::lost : transfer.origin);
        promote_failed(transfer, std::move(status));
        return;
      }
      if (!job.status.ok()) {
        transfer.mapped = false;
        promote_failed(transfer, job.status.clone());
        return;
      }
      if (transfer.stage == Transfer::Stage::land && (job.steps & (kPopulate | kClear)) == 0) {
        landed(transfer);
      } else {
        continue_promote(transfer);
      }
      return;
    case Transfer::Kind::demote:
      if (!job.status.ok()) {
        demote_failed(transfer, job.status.clone());
        return;
      }
      transfer.stage = Transfer::Stage::write;
      queue_io(transfer);
      return;
    case Transfer::Kind::evict: {
      const FrameId frame = transfer.frame;
      const Phase origin = transfer.origin;
      const bool undone = transfer.undone;
      const ErrorInfo error = transfer.undo_error;
      end_transfer(transfer);
      if (undone) {
        // The extent is again what it was before the promote.
        spaces_[space].tier->return_frame(frame);
        residency_.extents.word(space, ref).set_phase(origin);
        const Status why(error);
        extent_changed(ref, space, why.ok() ? nullptr : &why);
      } else {
        finish_evict(ref, space, frame);
        extent_changed(ref, space, nullptr);
      }
      return;
    }
    case Transfer::Kind::idle:
      return;
  }
}

void Mover::io_done(const SlotCompletion& completion) {
  Transfer& transfer = transfers_[completion.cookie];
  stats_.io_retries += completion.retries;
  if (transfer.kind == Transfer::Kind::promote) {
    block_channel_.prefetches -= transfer.priority == Priority::prefetch && transfer.channel == block_ ? 1 : 0;
    files_channel_.prefetches -= transfer.priority == Priority::prefetch && transfer.channel == files_ ? 1 : 0;
    if (completion.code == Code::ok) {
      land(transfer);
      return;
    }
    if (transfer.attempts++ == 0) {
      ++stats_.io_retries;
      queue_io(transfer);
      return;
    }
    promote_failed(transfer, io_error(transfer, completion.code, completion.native, completion.device,
                                      completion.device_offset));
    return;
  }
  if (completion.code == Code::ok) {
    written(transfer);
    return;
  }
  Status status = io_error(transfer, completion.code, completion.native, completion.device, completion.device_offset);
  std::uint32_t& failures = device_failures_[completion.device % device_failures_.size()];
  if (++failures >= 3) {
    block_->degrade(completion.device, status.message());
  }
  // The slot is whole nowhere; the bytes are in the frame. Another device, or another place of the same one.
  Extent& extent = residency_.extents.at(transfer.ref);
  block_->free(extent.slot);
  extent.has_slot = false;
  extent.slot_stale = false;
  Checksums::destroy(extent.sums);
  extent.sums = nullptr;
  if (transfer.attempts++ < 2) {
    ++stats_.io_retries;
    transfer.avoid |= std::uint64_t{1} << (completion.device % 64);
    Result<SlotId> other = block_->allocate(bytes_of(transfer.ref), transfer.avoid);
    if (!other.ok() && other.code() == Code::no_capacity) {
      transfer.avoid = 0;
    } else if (other.ok()) {
      block_->free(*other);
    }
    last_write_error_ = *status.info();
    give_staging(transfer);
    transfer.stage = Transfer::Stage::slot;
    find_slot(transfer);
    return;
  }
  demote_failed(transfer, std::move(status));
}

Status Mover::io_error(const Transfer& transfer, Code code, int native, std::uint16_t device, std::uint64_t offset) {
  ErrorInfo info = error_info(
      code, "{} of buffer '{}' failed on {} at offset {}: {}",
      transfer.kind == Transfer::Kind::promote ? "reading an extent" : "writing an extent",
      record_of(transfer.ref).label, transfer.channel->device_name(device), offset,
      native != 0 ? std::generic_category().message(native) : std::string(code_name(code)));
  info.native = native;
  info.tier = transfer.channel->place();
  info.tier.index = device;
  info.offset = offset;
  info.buffer = residency_.buffers.handle_of(residency_.extents.at(transfer.ref).buffer);
  return Status(info);
}

void Mover::queue_io(Transfer& transfer) {
  Channel& channel = transfer.channel == files_ && files_ != nullptr ? files_channel_ : block_channel_;
  channel.queues[static_cast<unsigned>(transfer.priority)].push_back(transfer.job.transfer);
}

void Mover::issue_io() {
  for (Channel* channel : {&block_channel_, &files_channel_}) {
    if (channel->tier == nullptr) {
      continue;
    }
    const unsigned depth = channel->tier->depth();
    for (unsigned p = 0; p < kPriorities; ++p) {
      auto& queue = channel->queues[p];
      const bool prefetch = p == static_cast<unsigned>(Priority::prefetch);
      while (!queue.empty() && channel->in_flight < depth) {
        Transfer& transfer = transfers_[queue.front()];
        queue.pop_front();
        ++channel->in_flight;
        channel->prefetches += prefetch ? 1 : 0;
        channel->tier->submit({.cookie = transfer.job.transfer,
                               .slot = transfer.slot,
                               .write = transfer.kind == Transfer::Kind::demote,
                               .data = transfer.job.data,
                               .length = bytes_of(transfer.ref)});
      }
    }
  }
}

bool Mover::take_staging(Transfer& transfer) {
  if (transfer.staging != 0) {
    return true;
  }
  for (std::uint32_t i = 0; i < staging_.size(); ++i) {
    if (!staging_[i].used) {
      staging_[i].used = true;
      transfer.staging = i + 1;
      return true;
    }
  }
  staging_queue_.push_back(transfer.job.transfer);
  return false;
}

void Mover::give_staging(Transfer& transfer) {
  if (transfer.staging == 0) {
    return;
  }
  staging_[transfer.staging - 1].used = false;
  transfer.staging = 0;
  if (!staging_queue_.empty()) {
    Transfer& next = transfers_[staging_queue_.front()];
    staging_queue_.pop_front();
    next.kind == Transfer::Kind::demote ? seal(next) : continue_promote(next);
  }
}

}  // namespace tiermem

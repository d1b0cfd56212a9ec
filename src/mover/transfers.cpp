// The records of transfers, and the ends of their jobs and I/O: which step of promote, demote or
// evict is next. The stepping thread only; never waits.
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "mover/transfer_engine.hpp"

namespace tiermem {

Transfer& TransferEngine::new_transfer(Transfer::Kind kind, ExtentRef ref, unsigned space,
                                       Priority priority) {
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
  transfer.begun_ns = now_;
  const bool comes = kind == Transfer::Kind::promote && priority != Priority::room;
  transfer.reason = !comes                           ? journal_.reason()
                    : priority == Priority::prefetch ? Reason::prefetch
                                                     : Reason::demand;
  directory_.at(ref).transfer = at + 1;
  ++transfers_live_;
  return transfer;
}

// Begins a copy of that space's bytes. Returns false if a writer is pinned: the copy will not
// count.
bool TransferEngine::start_copy(Transfer& transfer, unsigned space) {
  transfer.copied = static_cast<std::uint8_t>(space);
  return directory_.word(space, transfer.ref).start_copy();
}

void TransferEngine::end_transfer(Transfer& transfer) {
  journal_.note_activity();
  journal_.note_end(transfer);
  give_staging(transfer);
  give_bounce(transfer);
  Checksums::destroy(transfer.sums);
  transfer.sums = nullptr;
  SlotPages::destroy(transfer.slot_pages);
  transfer.slot_pages = nullptr;
  set_freeing(transfer, 0);
  prefetches_ -= transfer.kind == Transfer::Kind::promote && transfer.prefetch ? 1 : 0;
  block_slots_.return_wear(transfer.wear);
  if (transfer.copied != kNoSpace) {
    directory_.word(transfer.copied, transfer.ref).end_copy();
  }
  transfer.kind = Transfer::Kind::idle;
  directory_.at(transfer.ref).transfer = 0;
  free_transfers_.push_back(transfer.job.transfer);
  --transfers_live_;
  if (transfer.retreats) {
    const Journal::ReasonScope leaving(journal_, transfer.reason);
    retreated(transfer.ref, transfer.source);
  }
}

void TransferEngine::submit_job(Transfer& transfer, JobStep steps) {
  Job& job = transfer.job;
  job.steps = steps;
  job.tier = memories_[transfer.space].tier;
  job.frame = transfer.frame;
  job.host_tier = memories_[kHost].tier;
  job.at = directory_.address_in_window(transfer.ref, transfer.space);
  job.bytes = directory_.bytes_of(transfer.ref);
  const bool missing = transfer.whole_again && transfer.stage == Transfer::Stage::copy;
  job.pages = missing
                  ? ((PageMask{2} << (directory_.pages_in(transfer.ref) - 1)) - 1) & ~transfer.pages
                  : transfer.pages;
  const Extent& extent = directory_.at(transfer.ref);
  job.zeros = 0;
  if (job.pages != 0 && (missing || transfer.kind == Transfer::Kind::promote)) {
    job.zeros = zero_pages(extent) & job.pages;
  } else if (transfer.kind == Transfer::Kind::promote) {
    job.zeros = extent.zeros;
  }
  if (is_own_job(job)) {
    own_jobs_.push_back(&job);
  } else {
    hands_.submit(&job);
  }
}

bool TransferEngine::is_own_job(const Job& job) const {
  // One short call moves up to four pages: inline for a single request, and on workers if many wait
  // (docs/decisions/own-jobs.md). Other calls may take long.
  constexpr JobStep kCalls = ~(kHash | kVerify | kPopulate | kClear | kWithdraw | kRestore |
                               kInsert | kGather | kEmpty | kSpread | kMeasure);
  if ((job.steps & kRestore) != 0 && job.tier->has_locked_pages(job.frame)) {
    return false;
  }
  if (job.steps == kRestore && own_jobs_.empty() && job.tier->restores_at_once(job.frame)) {
    return true;
  }
  const bool moves = (job.steps & (kWithdraw | kRestore | kInsert | kEmpty)) != 0;
  const unsigned most_moves = options_.hands_move && requests_ > 1 ? 0 : 6;
  return job.bytes <= options_.own_job_bytes && (job.steps & kCalls) == 0 &&
         (!moves || own_jobs_.size() < most_moves) &&
         ((job.steps & kWithdraw) == 0 || !job.tier->withdraws_slowly(job.frame)) &&
         ((job.steps & kPopulate) == 0 ||
          (job.tier->host_addressable() && !job.tier->needs_populate(job.frame)));
}

// Runs inline jobs, up to a limit that keeps the step short. They do not run where they are
// submitted, because the caller is in the middle of an operation.
bool TransferEngine::run_own_jobs() {
  constexpr std::uint64_t kMost = std::uint64_t{512} << 10;
  std::uint64_t done = 0;
  while (!own_jobs_.empty() && done < kMost) {
    Job& job = *own_jobs_.front();
    own_jobs_.pop_front();
    done += job.bytes + (job.bytes < kMost / 64 ? kMost / 64 - job.bytes : 0);
    begin_job(job, nullptr);
    (void)run_job(job);  // Copies of opaque memory are none of these.
    job_done(job);
  }
  return done != 0;
}

// Jobs that belong to no transfer.
void TransferEngine::housekeeping_done(const Job& job) {
  if (bounce_.job_done(job)) {
    return;
  }
  if (block_slots_.job_done(job)) {
    const Status status = job.status.clone();
    for (const std::uint32_t at : block_slots_.take_grown()) {
      status.ok() ? find_slot(transfers_[at]) : demote_failed(transfers_[at], status.clone());
    }
    return;
  }
  for (Memory& memory : memories_) {
    (void)memory.job_done(job);
  }
}

void TransferEngine::job_done(Job& job) {
  if (job.transfer == ~std::uint32_t{0}) {
    housekeeping_done(job);
    return;
  }
  Transfer& transfer = transfers_[job.transfer];
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  if ((job.steps & (kFetch | kStore)) != 0) {
    went_direct(transfer);
    return;
  }
  journal_.note_copies(transfer);
  switch (transfer.kind) {
    case Transfer::Kind::promote:
      source_taken_home(transfer);
      if (job.checksum_bad) {
        journal_.count(&Stats::checksum_errors);
        Extent& extent = directory_.at(ref);
        const bool adopted = transfer.slot_tier == files_;
        if (!extent.bad_once) {
          extent.bad_once = true;  // Perhaps the wire and not the medium: read once more.
          transfer.stage = Transfer::Stage::read;
          queue_io(transfer);
          return;
        }
        extent.bad_once = false;
        const std::uint64_t offset = std::uint64_t{job.bad_block} * job.sums->block_bytes;
        Status status = fail(
            adopted ? Code::io_error : Code::lost,
            "buffer '{}', extent {}: the bytes at {} read back from {} are not those {}",
            directory_.record_of(ref).label.get().view(), directory_.number_of(ref), offset,
            transfer.slot_tier->device_name(transfer.slot_tier->device_of(transfer.slot)),
            adopted ? "first read: the file has changed since; adopt it again" : "written: lost");
        transfer.origin =
            adopted || transfer.pages != 0 || space != kHost ? transfer.origin : Phase::lost;
        extent.lost_with = kHost;
        promote_failed(transfer, std::move(status));
        return;
      }
      if (!job.status.ok()) {
        // A copy that is made again fails in the window: the frame is there.
        transfer.mapped = transfer.mapped && (job.steps & kMap) == 0;
        promote_failed(transfer, job.status.clone());
        return;
      }
      if (transfer.stage == Transfer::Stage::land && (job.steps & kPrepare) == 0) {
        landed(transfer);
      } else {
        continue_promote(transfer);
      }
      return;
    case Transfer::Kind::demote:
      if (transfer.stage == Transfer::Stage::copy) {
        if (job.status.ok()) {
          memories_[space].exit_backoff.worked();
          transfer.whole_again ? whole_measured(transfer) : write_and_hash(transfer);
        } else if (job.checksum_bad) {
          journal_.count(&Stats::checksum_errors);
          demote_failed(transfer, fail(Code::lost, "buffer '{}': bytes in its slot are lost",
                                       directory_.record_of(ref).label.get().view()));
        } else {
          demote_failed(transfer, job.status.clone());
        }
        return;
      }
      if (transfer.stage == Transfer::Stage::measure) {
        measured(transfer);
        return;
      }
      if (transfer.stage == Transfer::Stage::withdraw) {
        withdrawn(transfer);
        return;
      }
      if (transfer.stage == Transfer::Stage::remap) {
        mapped_back(transfer);
        return;
      }
      transfer.hashing = false;
      if (transfer.stage == Transfer::Stage::hash) {
        write_changed(transfer);
        return;
      }
      if (std::exchange(transfer.write_ended, false)) {
        write_done(transfer, SlotCompletion(transfer.ended));
      }
      return;
    case Transfer::Kind::evict: {
      if (!job.status.ok()) {
        set_freeing(transfer, 0);  // Until the kernel is willing others make room.
        unmaps_.push_back(job.transfer);
        unmap_backoff_.failed(now_);
        return;
      }
      unmap_backoff_.worked();
      const FrameId frame = transfer.frame;
      const Phase origin = transfer.origin;
      const bool undone = transfer.undone;
      const Ended::Failed failed = failure_of(transfer);
      const ErrorInfo error = transfer.undo_error;
      const Journal::ReasonScope leaving(journal_, transfer.reason);
      const std::int64_t begun_ns = transfer.begun_ns;
      end_transfer(transfer);
      if (undone) {
        // The extent is again what it was before the promote.
        memories_[space].give_frame(frame, directory_.bytes_of(ref));
        directory_.word(space, ref).set_phase(origin);
        extent_changed(ref, space, Status(error), failed);
      } else {
        finish_evict(ref, space, frame, begun_ns);
        extent_changed(ref, space);
      }
      return;
    }
    case Transfer::Kind::empty:
      emptied(transfer);
      return;
    case Transfer::Kind::show: {
      Status status = job.status.clone();
      end_transfer(transfer);
      if (space == kHost && status.ok()) {
        to_window(ref);
      }
      extent_changed(ref, space, std::move(status));
      return;
    }
    case Transfer::Kind::gather:  // Has no jobs.
    case Transfer::Kind::idle:
      return;
  }
}

const Transfer* TransferEngine::parked_for(const Request& request, ExtentRef ref) const {
  const Transfer* const transfer = transfer_of(ref);
  return transfer != nullptr && transfer->parked_for == &request ? transfer : nullptr;
}

// A transfer of this extent has ended, or is parked: the step lets its waiters look again.
void TransferEngine::extent_changed(ExtentRef ref, unsigned space, Status error,
                                    Ended::Failed failed) {
  if (directory_.at(ref).waiters != 0) {
    ended_.add({.ref = ref,
                .space = static_cast<std::uint8_t>(space),
                .failed = failed,
                .error = std::move(error)});
  }
}

}  // namespace tiermem

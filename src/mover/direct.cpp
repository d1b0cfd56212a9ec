// Transfers between slots and the memory of devices past the host, if there is such a path and no
// checksum to compute or compare. They go through the channel like all others. If one fails, the
// same bytes go through the staging, which shows whether the path was at fault. The stepping thread
// only; never waits.
#include "mover/transfer_engine.hpp"

namespace tiermem {

bool TransferEngine::goes_direct(Transfer& transfer) {
  const bool hashes = options_.checksums && !directory_.has_flag(transfer.ref, kNoChecksum);
  const bool verifies = transfer.reading && directory_.at(transfer.ref).sums != nullptr;
  transfer.direct = options_.direct != nullptr && transfer.slot_tier == block_ &&
                    transfer.pages == 0 && directory_.at(transfer.ref).slot_pages == nullptr &&
                    !hashes && !verifies && block_slots_.tries_direct(now_) &&
                    options_.direct->reaches(*memories_[transfer.space].tier, transfer.slot);
  return transfer.direct;
}

void TransferEngine::go_direct(Transfer& transfer) {
  transfer.job.direct = options_.direct;
  transfer.job.slot = transfer.slot;
  submit_job(transfer, writes(transfer) ? kStore : kFetch);
}

void TransferEngine::went_direct(Transfer& transfer) {
  const bool wrote = writes(transfer);
  transfer.at_device = false;
  channel_of(transfer).ended(load_of(transfer));
  ++transfer.requests;
  if (transfer.job.status.ok()) {
    block_slots_.direct_worked(transfer.slot, transfer.job.bytes, wrote);
    transfer.moved += transfer.job.bytes;
    transfer.path = Receipt::Path::direct;
    if (wrote) {
      transfer.wear -= static_cast<std::int64_t>(transfer.length);
      memories_[transfer.space].exit_backoff.worked();
      written(transfer);
    } else {
      transfer.stage = Transfer::Stage::land;
      landed(transfer);
    }
    return;
  }
  journal_.count(&Stats::gpu_direct_errors);
  ++transfer.retries;
  block_slots_.direct_failed(now_);  // So it is not tried again here.
  transfer.direct = false;
  if (wrote) {
    seal(transfer);
  } else {
    transfer.stage = Transfer::Stage::staging;
    continue_promote(transfer);
  }
}

}  // namespace tiermem

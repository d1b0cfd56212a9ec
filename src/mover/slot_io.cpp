// I/O of slot tiers: what the channels choose is submitted, and what has ended takes its transfer
// to the next stage. The stepping thread only; never waits.
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "mover/transfer_engine.hpp"

namespace tiermem {

void TransferEngine::queue_io(Transfer& transfer) {
  Channel& channel = channel_of(transfer);
  if (transfer.kind == Transfer::Kind::gather) {
    channel.queue_gather(transfer.job.transfer, transfer.reads);
    return;
  }
  // Background reads and writes are apart: one may be held back while the other goes on.
  const bool apart = transfer.priority > Priority::room && transfer.kind == Transfer::Kind::demote;
  channel.queue(transfer.job.transfer, load_of(transfer), apart);
}

void TransferEngine::issue_io() {
  std::uint64_t step = 0;
  for (Channel* channel : {&block_channel_, &files_channel_}) {
    const std::span<const Channel::Issue> issued = channel->issue(step);
    for (const Channel::Issue& issue : issued) {
      issue.read != 0 ? send_read(transfers_[issue.transfer], issue.read - 1)
                      : send(transfers_[issue.transfer], issue.depth);
    }
    if (!issued.empty()) {
      channel->tier()->dispatch();
    }
  }
}

void TransferEngine::send(Transfer& transfer, unsigned depth) {
  transfer.at_device = true;
  transfer.depth = std::max(transfer.depth, depth);
  if (transfer.direct) {
    go_direct(transfer);
    return;
  }
  if (const SlotPages* pages = slot_pages_of(transfer)) {
    send_stored(transfer, *pages);
    return;
  }
  transfer.slot_tier->submit({.cookie = transfer.job.transfer,
                              .slot = transfer.slot,
                              .write = writes(transfer),
                              .data = transfer.job.data + transfer.from,
                              .length = io_bytes(transfer),
                              .offset = transfer.from});
}

void TransferEngine::io_done(const SlotCompletion& reported) {
  SlotCompletion completion = reported;
  if (reported.cookie >> 32 != 0) {
    if (transfers_[static_cast<std::uint32_t>(reported.cookie)].kind == Transfer::Kind::gather) {
      gather_read_done(reported);
      return;
    }
    if (!run_ended(reported, completion)) {
      return;
    }
  }
  Transfer& transfer = transfers_[completion.cookie];
  transfer.at_device = false;
  channel_of(transfer).ended(load_of(transfer));
  journal_.note_io(transfer, completion, writes(transfer), io_bytes(transfer));
  journal_.count(&Stats::io_retries, completion.retries);
  const bool missing = transfer.kind == Transfer::Kind::demote && !writes(transfer);
  if (missing && completion.code == Code::ok) {
    missing_came(transfer);
    return;
  }
  if (missing) {
    demote_failed(transfer, io_error(transfer, completion.code, completion.native,
                                     completion.device, completion.device_offset));
    return;
  }
  if (transfer.kind == Transfer::Kind::promote) {
    if (completion.code == Code::ok) {
      land(transfer);
      return;
    }
    if (transfer.attempts++ == 0) {
      journal_.count(&Stats::io_retries);
      queue_io(transfer);
      return;
    }
    promote_failed(transfer, io_error(transfer, completion.code, completion.native,
                                      completion.device, completion.device_offset));
    return;
  }
  transfer.wear -= static_cast<std::int64_t>(io_bytes(transfer));
  if (transfer.hashing) {
    transfer.write_ended = true;
    transfer.ended = completion;
    return;
  }
  write_done(transfer, completion);
}

Status TransferEngine::io_error(const Transfer& transfer, Code code, int native,
                                std::uint16_t device, std::uint64_t offset) {
  const bool changed = transfer.slot_tier == files_ && native == ESTALE;
  ErrorInfo info = error_info(
      code, "{} of buffer '{}' failed on {} at offset {}: {}",
      writes(transfer) ? "writing an extent" : "reading an extent",
      directory_.record_of(transfer.ref).label.get().view(),
      transfer.slot_tier->device_name(device), offset,
      changed
          ? "the file has changed since it was adopted (size or modification time); adopt it again"
      : native != 0 ? std::strerror(native)
                    : code_name(code));
  info.native = native;
  info.tier = transfer.slot_tier->place();
  info.device = device;
  info.offset = offset;
  info.buffer = directory_.handle_of(transfer.ref);
  return Status(info);
}

bool TransferEngine::take_staging(Transfer& transfer) {
  if (!transfer.staging) {
    transfer.staging =
        bounce_.take_staging(transfer.job.transfer, directory_.bytes_of(transfer.ref));
  }
  return static_cast<bool>(transfer.staging);
}

void TransferEngine::give_staging(Transfer& transfer) {
  if (transfer.staging) {
    bounce_.give_staging(std::exchange(transfer.staging, {}), directory_.bytes_of(transfer.ref));
  }
}

}  // namespace tiermem

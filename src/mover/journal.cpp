// Receipts and counters of transfers.
#include "mover/journal.hpp"

#include <algorithm>

namespace tiermem {

void Journal::count_mapped(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::uffd_move:
      count(&Stats::moved_by_uffd);
      return;
    case Mechanism::remap:
      count(&Stats::moved_by_remap);
      return;
    case Mechanism::copy:
      count(&Stats::moved_by_copy);
      return;
    case Mechanism::in_place:
      count(&Stats::moved_in_place);
      return;
  }
}

void Journal::note_io(Transfer& transfer, const SlotCompletion& completion, bool write,
                      std::uint64_t bytes) {
  transfer.requests += completion.requests;
  transfer.retries += completion.retries;
  transfer.buffered |= completion.buffered;
  if (completion.code == Code::ok) {
    transfer.moved += bytes;
    note_slot_bytes(*transfer.slot_tier, write, bytes);
  }
}

void Journal::note_direct(const Transfer& transfer, bool write, std::uint64_t bytes) {
  count(write ? &Stats::gpu_direct_out : &Stats::gpu_direct_in, bytes);
  TierStats& total = memory_bytes_[memories_.of(transfer.space, transfer.frame).index];
  (write ? total.bytes_out : total.bytes_in) += bytes;
  note_slot_bytes(*transfer.slot_tier, write, bytes);
}

// Stats::host_bytes_in and host_bytes_out have the bytes of all memories of the host. So the others
// are counted here, and the first one has the rest.
TierStats* Journal::counts_of(unsigned space, FrameId frame) {
  const MemoryLedger& memory = memories_.of(space, frame);
  return space != kHost || memory.rank() == 0 ? nullptr : &memory_bytes_[memory.index];
}

void Journal::note_promoted(const Transfer& transfer, std::uint64_t bytes) {
  count(transfer.prefetch ? &Stats::prefetched : &Stats::promoted, bytes);
  if (TierStats* const counts = counts_of(transfer.space, transfer.frame)) {
    counts->bytes_in += bytes;
  }
}

void Journal::note_demoted(const Transfer& transfer, std::uint64_t bytes) {
  count(&Stats::demoted, bytes);
  if (TierStats* const counts = counts_of(transfer.space, transfer.frame)) {
    counts->bytes_out += bytes;
  }
}

void Journal::note_relocated(const Relocate& transfer) {
  const std::uint64_t bytes = transfer.moved;
  TierStats& all = memory_bytes_[memories_.first(kHost).index];
  all.bytes_in += bytes;
  all.bytes_out += bytes;
  if (TierStats* const from = counts_of(kHost, transfer.frame)) {
    from->bytes_out += bytes;
  }
  if (TierStats* const to = counts_of(kHost, transfer.to)) {
    to->bytes_in += bytes;
  }
}

void Journal::note_copies(Transfer& transfer) {
  const Job& job = transfer.job;
  if (!job.status.ok() || (job.steps & (kCopyOut | kCopyIn | kCopyPeer)) == 0) {
    return;
  }
  const std::uint64_t out = (job.steps & kCopyOut) != 0 ? job.bytes : 0;
  const std::uint64_t in = (job.steps & kCopyIn) != 0 ? job.bytes : 0;
  if ((job.steps & kCopyPeer) != 0) {
    transfer.path = Receipt::Path::peer;
    count(&Stats::gpu_bytes_peer, 2 * job.bytes);
  } else if (transfer.staging) {
    transfer.path = Receipt::Path::staged;
    count(&Stats::gpu_bytes_staged, out + in);
  } else if (!job.locked) {
    transfer.path = Receipt::Path::pageable;
    count(&Stats::gpu_bytes_pageable, out + in);
  } else {
    transfer.path = Receipt::Path::locked;
  }
}

Receipt Journal::blank_receipt(ExtentRef ref) const {
  const BufferRecord& record = directory_.record_of(ref);
  const std::uint64_t i = directory_.number_of(ref);
  const std::uint64_t at = i << record.extent_shift.load(std::memory_order_relaxed);
  Receipt receipt;
  receipt.buffer = directory_.handle_of(ref);
  receipt.offset = at - std::min(at, record.lead.load(std::memory_order_relaxed));
  receipt.ended_ns = now_;
  return receipt;
}

void Journal::note_end(const Transfer& transfer) {
  const auto* const promote = if_is<Promote>(&transfer);
  if (transfer.outcome == Transfer::Outcome::undone || (promote != nullptr && promote->stock) ||
      (!transfer.promotes() && !transfer.demotes() && transfer.kind != TransferKind::relocate &&
       transfer.kind != TransferKind::destage)) {
    return;
  }
  Receipt receipt = blank_receipt(transfer.ref);
  receipt.bytes = transfer.moved;
  receipt.begun_ns = transfer.begun_ns;
  receipt.requests = transfer.requests;
  receipt.retries = transfer.retries;
  receipt.depth = transfer.depth;
  receipt.reason = transfer.reason;
  receipt.buffered = transfer.buffered;
  receipt.path = transfer.path;
  receipt.failed = transfer.outcome == Transfer::Outcome::failed;
  if (const auto* const relocate = if_is<Relocate>(&transfer)) {
    receipt.from = place_of(transfer.space, transfer.frame);
    receipt.to = place_of(transfer.space, relocate->to);
    receipt.mechanism = static_cast<Receipt::Mechanism>(transfer.job.mechanism);
    if (!receipt.failed) {
      note_relocated(*relocate);
    }
  } else if (const auto* const destage = if_is<Destage>(&transfer)) {
    receipt.from = destage->source->tier->place();
    receipt.to = destage->to->tier->place();
  } else if (transfer.demotes()) {
    receipt.from = place_of(transfer.space, transfer.frame);
    receipt.to = transfer.slot_tier->tier->place();
  } else {
    receipt.to = place_of(transfer.space, transfer.frame);
    receipt.mechanism = transfer.pages != 0
                            ? Receipt::Mechanism::copy
                            : static_cast<Receipt::Mechanism>(transfer.job.mechanism);
    if (transfer.reading) {
      receipt.from = transfer.slot_tier != nullptr ? transfer.slot_tier->tier->place() : Place{};
    } else if (promote->source != kNoSpace) {
      receipt.from = place_of(promote->source, directory_.frame(promote->source, transfer.ref));
      receipt.bytes = directory_.bytes_of(transfer.ref);
    }
  }
  receipts_.add(receipt);
}

void Journal::note_dropped(ExtentRef ref, const MemoryLedger& memory, std::uint64_t bytes,
                           std::int64_t begun_ns) {
  const BufferRecord& record = directory_.record_of(ref);
  if (reason_ == Reason::none || (record.generation.load(std::memory_order_relaxed) & 1) == 0) {
    return;  // It left with its buffer.
  }
  Receipt receipt = blank_receipt(ref);
  receipt.bytes = bytes;
  receipt.begun_ns = begun_ns;
  receipt.from = memory.tier->place();
  receipt.reason = reason_;
  receipts_.add(receipt);
}

std::string Journal::check() const {
  if (reason_ != Reason::none) {
    return "a scope of a reason has not ended with its step";
  }
  return receipts_.consistent() ? "" : "the totals of receipts are not those of the receipts added";
}

}  // namespace tiermem

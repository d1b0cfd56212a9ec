// Receipts: what each transfer did and why, and where extents are. The stepping
// thread only; never waits. Times are those of the steps: the mover reads no
// clock.
#include <algorithm>

#include "mover/mover.hpp"

namespace tiermem {

// A device has done its part, or given up.
void Mover::note_io(Transfer& transfer, const SlotCompletion& completion) {
  transfer.requests += completion.requests;
  transfer.retries += completion.retries;
  transfer.buffered |= completion.buffered;
  transfer.moved += completion.code == Code::ok ? io_bytes(transfer) : 0;
}

Receipt Mover::blank_receipt(ExtentRef ref) const {
  const BufferRecord& record = directory_.record_of(ref);
  const std::uint64_t i = directory_.number_of(ref);
  const std::uint64_t at = i << record.extent_shift.load(std::memory_order_relaxed);
  Receipt receipt;
  receipt.buffer = directory_.handle_of(ref);
  receipt.offset = at - std::min(at, record.lead.load(std::memory_order_relaxed));
  receipt.ended_ns = now_;
  return receipt;
}

// Of a transfer that is about to end. What leaves without a write has its
// receipt from note_dropped, and spare buffers that nobody has asked for yet
// are nobody's business.
void Mover::note_end(const Transfer& transfer) {
  const bool promote = transfer.kind == Transfer::Kind::promote;
  if (transfer.outcome == Transfer::Outcome::undone || transfer.stock ||
      (!promote && transfer.kind != Transfer::Kind::demote)) {
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
  if (!promote) {
    receipt.from = end_of(transfer.space);
    receipt.to = Receipt::End::block;
  } else {
    receipt.to = end_of(transfer.space);
    receipt.mechanism = transfer.pages != 0
                            ? Receipt::Mechanism::copy
                            : static_cast<Receipt::Mechanism>(transfer.job.mechanism);
    if (transfer.reading || transfer.pages != 0) {
      receipt.from = transfer.slot_tier == files_ && files_ != nullptr ? Receipt::End::file
                                                                       : Receipt::End::block;
    } else if (transfer.source != kNoSpace) {
      receipt.from = end_of(transfer.source);
      receipt.bytes = directory_.bytes_of(transfer.ref);
    }
  }
  receipts_.add(receipt);
}

// A copy has gone without a write, or after one that has its own receipt.
void Mover::note_dropped(ExtentRef ref, unsigned space, std::uint64_t bytes,
                         std::int64_t begun_ns) {
  const BufferRecord& record = directory_.record_of(ref);
  if (leaving_ == Reason::none || (record.generation.load(std::memory_order_relaxed) & 1) == 0) {
    return;  // With its buffer.
  }
  Receipt receipt = blank_receipt(ref);
  receipt.bytes = bytes;
  receipt.begun_ns = begun_ns;
  receipt.from = end_of(space);
  receipt.reason = leaving_;
  receipts_.add(receipt);
}

// Of the extent that the request's span begins in.
void Mover::tell_where(Request& request) {
  const Span& span = request.spans.front();
  const BufferRecord& record = *span.record;
  const ExtentRef ref = span.first;
  directory_.begin(span, ref);
  const Extent& extent = directory_.at(ref);
  Whereabouts& where = *request.where;
  using State = Whereabouts::State;
  const unsigned holder =
      directory_.readable_elsewhere(ref, kNoSpace);  // The host before any device.
  const Phase host = directory_.word(kHost, ref).load().phase();
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    where.pinned = where.pinned || directory_.word(space, ref).load().pinned();
  }
  const std::uint64_t inside = span.offset & ((std::uint64_t{1} << span.shift) - 1);
  const PageMask page = extent.parts >> (inside / kSmallestExtent % kMostParts);
  if (holder != kNoSpace || (page & 1) != 0) {
    const unsigned space = holder != kNoSpace ? holder : kHost;
    where.state = State::resident;
    where.place = memories_[space].tier->place();
    where.dirty = directory_.word(space, ref).load().dirty();
  } else if (extent.transfer != 0) {
    where.state = State::moving;
  } else if (host == Phase::lost) {
    where.state = State::lost;
  } else if (extent.has_slot || record.file != 0) {
    where.state = State::in_slot;
    where.place = extent.has_slot ? block_->place() : files_->place();
  }
  // What says why it is there; of what is in a slot only, why it left.
  const Receipt ours = blank_receipt(ref);
  const Receipt* const last = receipts_.newest([&](const Receipt& receipt) {
    const bool to_memory = receipt.to == Receipt::End::dram || receipt.to == Receipt::End::gpu;
    return receipt.buffer == ours.buffer && receipt.offset == ours.offset && !receipt.failed &&
           (where.state != State::resident ||
            (to_memory && (receipt.to == Receipt::End::gpu) == (where.place.kind == Kind::gpu)));
  });
  if (last != nullptr && where.state != State::zero) {
    where.last = *last;
    where.since_ns = now_ - last->ended_ns;
  }
}

}  // namespace tiermem

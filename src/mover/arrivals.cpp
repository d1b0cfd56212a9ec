// A request for a stream need not wait for its last copy, from the host to the device. Once that
// copy has its place among the device's copies, the stream can wait for it. The extent is pinned
// while its word is still `incoming`, which no other caller can do. Nothing else differs. The
// stepping thread only; never waits.
#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "mover/transfer_engine.hpp"

namespace tiermem {

void TransferEngine::copy_begun(const Job& job, std::uint64_t ordinal) {
  Transfer& transfer = transfers_[job.transfer];
  source_taken_home(transfer);
  transfer.arriving = ordinal;
  if (directory_.at(transfer.ref).waiters != 0) {
    ended_.add({.ref = transfer.ref, .space = transfer.space, .begun = true});
  }
}

// A writer has the only copy: the source goes, as soon as it has been read. False: it, or another
// one, cannot go now.
bool TransferEngine::take_over(Transfer& transfer) {
  for (unsigned other = 0; other < directory_.spaces(); ++other) {
    if (other != transfer.source && directory_.readable(transfer.ref, other)) {
      return false;
    }
  }
  ExtentWord& source = directory_.word(transfer.source, transfer.ref);
  transfer.took_over =
      !directory_.in_window(transfer.ref, transfer.source) && source.try_take_over();
  return transfer.took_over;
}

// The copy failed, which a device that works does not do. True: streams have it pinned, and the
// frame goes when they have come to the ends of their views.
bool TransferEngine::abandon_promote(Transfer& transfer, const Status* error) {
  if (error != nullptr && error->info() != nullptr) {
    transfer.undo_error = *error->info();
  }
  if (directory_.word(transfer.space, transfer.ref).load().pinned()) {
    transfer.stage = Transfer::Stage::abandoned;
    abandoned_.push_back(transfer.job.transfer);
    return true;
  }
  transfer.arriving = 0;
  directory_.frame(transfer.space, transfer.ref) = {};
  directory_.word(transfer.space, transfer.ref).clear_dirty();
  give_back_source(transfer);
  return false;
}

void TransferEngine::serve_abandoned() {
  Vector<std::uint32_t> waiting;
  waiting.swap(abandoned_);
  for (const std::uint32_t at : waiting) {
    Transfer& transfer = transfers_[at];
    if (directory_.word(transfer.space, transfer.ref).load().pinned()) {
      abandoned_.push_back(at);
      continue;
    }
    const Status why(transfer.undo_error);
    undo_promote(transfer, why.ok() ? nullptr : &why);
  }
}

// The bytes that a stream wrote on the device are not there, and the bytes of before are not the
// answer.
void TransferEngine::give_back_source(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  if (transfer.took_over && !transfer.written) {
    directory_.word(transfer.source, ref).set_phase(Phase::exclusive);
  } else if (transfer.took_over) {
    finish_evict(ref, transfer.source, directory_.frame(transfer.source, ref), transfer.begun_ns);
  } else if (transfer.source != kNoSpace) {
    settle(ref);
  }
  transfer.took_over = false;
  if (transfer.written) {
    lose(ref, transfer.space);
  }
}

// The bytes under the copy can no longer change, so they are right when it ends: from a slot they
// were verified, and of another copy all that may be pinned from here on are readers.
bool TransferEngine::lets_in(const Request& request, const Need& need) {
  Transfer& transfer = transfers_[directory_.at(need.ref).transfer - 1];
  if (!request.for_stream || transfer.kind != Transfer::Kind::promote ||
      transfer.space != need.space || transfer.parked_for != nullptr ||
      transfer.stage == Transfer::Stage::abandoned) {
    return false;
  }
  std::atomic_ref(transfer.job.tell).store(true, std::memory_order_relaxed);
  if (transfer.arriving == 0 ||
      (need.shown && !memories_[need.space].tier->shows(
                         transfer.frame, directory_.address_in_window(need.ref, need.space)))) {
    return false;
  }
  if (transfer.source == kNoSpace || transfer.took_over) {
    return true;
  }
  return need.writes ? take_over(transfer) : directory_.word(transfer.source, need.ref).try_share();
}

bool TransferEngine::pin_incoming(Request& request, const Span& span) {
  if (!residency_.pin_incoming(span)) {
    return false;
  }
  Transfer& transfer = transfers_[directory_.at(span.first).transfer - 1];
  if (transfer.parked_for == &request) {
    return true;  // It is published in this step.
  }
  directory_.frame(span.space, span.first) = transfer.frame;  // The view's address.
  transfer.written = transfer.written || span.writes;
  request.arrivals[span.space] = std::max(request.arrivals[span.space], transfer.arriving);
  return true;
}

}  // namespace tiermem

// A request for a stream need not wait for its last copy, from the host to the device. Once that
// copy has its place among the device's copies, the stream can wait for it. The extent is pinned
// while its word is still `incoming`, which no other caller can do. Nothing else differs. The
// stepping thread only; never waits.
#include <algorithm>
#include <atomic>

#include "mover/promoter.hpp"

namespace tiermem {

void Promoter::copy_begun(Promote& transfer, std::uint64_t ordinal) {
  source_taken_home(transfer);
  transfer.arriving = ordinal;
  carrier_.copy_begun(transfer.ref, transfer.space);
}

// A writer has the only copy: the source goes, as soon as it has been read. False: it, or another
// one, cannot go now.
bool Promoter::take_over(Promote& transfer) {
  for (unsigned other = 0; other < directory_.spaces(); ++other) {
    if (other != transfer.source && directory_.readable(transfer.ref, other)) {
      return false;
    }
  }
  (void)directory_.bits(transfer.source, transfer.ref);  // Views may have been released since.
  transfer.took_over = !directory_.in_window(transfer.ref, transfer.source) &&
                       directory_.word(transfer.source, transfer.ref).try_take_over();
  return transfer.took_over;
}

// The copy failed, which a device that works does not do. True: streams have it pinned, and the
// frame goes when they have come to the ends of their views.
bool Promoter::abandon(Promote& transfer, const Status* error) {
  if (error != nullptr && error->info() != nullptr) {
    transfer.undo_error = *error->info();
  }
  if (directory_.word(transfer.space, transfer.ref).load().pinned()) {
    advance(transfer, Stage::abandoned);
    abandoned_.push_back(transfer.job.transfer);
    return true;
  }
  transfer.arriving = 0;
  directory_.frame(transfer.space, transfer.ref) = {};
  directory_.word(transfer.space, transfer.ref).clear_dirty();
  give_back_source(transfer);
  return false;
}

void Promoter::serve_abandoned() {
  Vector<std::uint32_t> waiting;
  waiting.swap(abandoned_);
  for (const std::uint32_t at : waiting) {
    Promote& transfer = carrier_.at<Promote>(at);
    if (directory_.word(transfer.space, transfer.ref).load().pinned()) {
      abandoned_.push_back(at);
      continue;
    }
    const Status why(transfer.undo_error);
    undo(transfer, why.ok() ? nullptr : &why);
  }
}

// The bytes that a stream wrote on the device are not there, and the bytes of before are not the
// answer.
void Promoter::give_back_source(Promote& transfer) {
  const ExtentRef ref = transfer.ref;
  if (transfer.took_over && !transfer.written) {
    directory_.word(transfer.source, ref).set_phase(Phase::exclusive);
  } else if (transfer.took_over) {
    copies_.finish_evict(ref, transfer.source, directory_.frame(transfer.source, ref),
                         transfer.begun_ns);
  } else if (transfer.source != kNoSpace) {
    copies_.settle(ref);
  }
  transfer.took_over = false;
  if (transfer.written) {
    copies_.lose(ref, carrier_.memory_of(transfer));
  }
}

// The bytes under the copy can no longer change, so they are right when it ends: from a slot they
// were verified, and of another copy all that may be pinned from here on are readers.
bool Promoter::lets_in(const Request& request, const Need& need) {
  Transfer& head = *carrier_.transfer_of(need.ref);
  if (!request.for_stream || head.kind != Transfer::Kind::promote || head.space != need.space) {
    return false;
  }
  Promote& transfer = as<Promote>(head);
  if (transfer.parked_for != nullptr || transfer.stage == Stage::abandoned ||
      transfer.stage == Stage::unmap) {
    return false;
  }
  std::atomic_ref(transfer.job.tell).store(true, std::memory_order_relaxed);
  if (transfer.arriving == 0 ||
      (need.shown &&
       !memories_.space(need.space)
            .shows(transfer.frame, directory_.address_in_window(need.ref, need.space)))) {
    return false;
  }
  if (transfer.source == kNoSpace || transfer.took_over) {
    return true;
  }
  return need.writes ? take_over(transfer) : directory_.word(transfer.source, need.ref).try_share();
}

bool Promoter::pin_incoming(Request& request, const Span& span) {
  if (!residency_.pin_incoming(span)) {
    return false;
  }
  Promote& transfer = as<Promote>(*carrier_.transfer_of(span.first));
  if (transfer.parked_for == &request) {
    return true;  // It is published in this step.
  }
  directory_.frame(span.space, span.first) = transfer.frame;  // The view's address.
  transfer.written = transfer.written || span.writes;
  request.arrivals[span.space] = std::max(request.arrivals[span.space], transfer.arriving);
  return true;
}

}  // namespace tiermem

// Pins of extents for requests. A request for a stream need not wait for its last copy
// (mover/arrivals.cpp): its extents are pinned while their words are still `incoming`. The stepping
// thread only; never waits.
#include <algorithm>
#include <atomic>

#include "mover/mover.hpp"

namespace tiermem {

// The bytes under the copy can no longer change, so they are right when it ends: from a slot they
// were verified, and of another copy all that may be pinned from here on are readers.
bool Mover::lets_in(const Request& request, const Need& need) {
  Transfer& transfer = *engine_.transfer_of(need.ref);
  if (!request.for_stream || transfer.kind != Transfer::Kind::promote ||
      transfer.space != need.space || transfer.parked_for != nullptr ||
      transfer.stage == Transfer::Stage::abandoned) {
    return false;
  }
  std::atomic_ref(transfer.job.tell).store(true, std::memory_order_relaxed);
  if (transfer.arriving == 0 || (need.shown && !needs_.shown(need, transfer.frame))) {
    return false;
  }
  if (transfer.source == kNoSpace || transfer.took_over) {
    return true;
  }
  return need.writes ? engine_.take_over(transfer)
                     : directory_.word(transfer.source, need.ref).try_share();
}

bool Mover::pin_for(Request& request, const Span& span) {
  if ((!request.for_stream || span.space == kHost) && parking_ != &request) {
    return residency_.pin(span);
  }
  for (std::uint32_t i = 0; i < span.count; ++i) {
    Span one = span;
    one.first += i;
    one.count = 1;
    if (!pin_one_for(request, one)) {
      one.first = span.first;
      one.count = i;
      if (i != 0) {
        residency_.unpin(one.run());
      }
      return false;
    }
  }
  return true;
}

bool Mover::pin_one_for(Request& request, const Span& span) {
  if (directory_.word(span.space, span.first).load().phase() != Phase::incoming) {
    return residency_.pin(span);
  }
  if (!residency_.pin_incoming(span)) {
    return false;
  }
  Transfer& transfer = *engine_.transfer_of(span.first);
  if (transfer.parked_for == &request) {
    return true;  // It is published in this step.
  }
  directory_.frame(span.space, span.first) = transfer.frame;  // The view's address.
  transfer.written = transfer.written || span.writes;
  request.arrivals[span.space] = std::max(request.arrivals[span.space], transfer.arriving);
  return true;
}

}  // namespace tiermem

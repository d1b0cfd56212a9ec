// Arming: the look at each need of a request. It starts what the extent lacks, or says what the
// need waits for. The stepping thread only; never waits.

#include "base/error.hpp"
#include "mover/desk.hpp"
#include "mover/page_mask.hpp"

namespace tiermem {

void Desk::activate(Request& request) {
  request.state = Request::State::loading;
  request.armed = 0;
  request.pending = 0;
  arm_more(request);
}

// In pieces, so that a request of a million extents does not hold up a step.
void Desk::arm_more(Request& request) {
  const std::uint64_t until = work_ + 512;
  while (request.armed < request.needs.size() && work_ < until) {
    ++work_;
    const std::uint32_t index = request.armed++;
    arm(request, index);
    if (request.state == Request::State::done) {
      return;
    }
  }
  if (request.armed < request.needs.size()) {
    arming_.push_back(&request);
    return;
  }
  maybe_finish(request);
}

// Looks at one need and starts what it lacks. Counts it as pending unless it is ready.
void Desk::arm(Request& request, std::uint32_t index) {
  if (request.ending) {
    return;
  }
  Need& need = request.needs[index];
  const bool comes = request.kind == RequestKind::acquire || request.kind == RequestKind::prefetch;
  if (resting_ && !(comes && needs_.ready(need))) {
    waiters_.wait_for_pins(request, index);  // Looked at again after the fork.
    return;
  }
  engine_.desert_destage(need.ref);
  Arm result = Arm::ready;
  if (comes) {
    result = arm_acquire(request, need);
  } else if (request.kind == RequestKind::gather) {
    result = arm_gather(request, need);
  } else if (request.kind == RequestKind::release_memory) {
    result = arm_release_memory(request, need);
    if (result == Arm::ready) {
      note_left(request, need);
    }
  } else {
    result = arm_leave(request, need);
  }
  if (request.state == Request::State::done || result == Arm::ready) {
    return;
  }
  if (result == Arm::wait_transfer) {
    waiters_.wait_for_transfer(request, index);
  } else if (result == Arm::wait_pins) {
    waiters_.wait_for_pins(request, index);
  } else {
    waiters_.wait_for_prefetch(request, index);
  }
}

void Desk::note_touch(const Request& touch, ExtentRef ref) {
  if (const Transfer* const transfer = engine_.transfer_of(ref)) {
    read_ahead_.touched(touch, *transfer);
  }
}

Desk::Arm Desk::arm_acquire(Request& request, Need& need) {
  const bool prefetch = request.kind == RequestKind::prefetch;
  const bool here = directory_.word(need.space, need.ref).load().view_readable();
  if (needs_.ready(need) || (prefetch && here && !need.shown)) {
    if (prefetch) {
      room_.wish_climb(need.ref);
    }
    return Arm::ready;
  }
  Extent& extent = directory_.at(need.ref);
  if (extent.transfer != 0) {
    if (engine_.lets_in(request, need)) {
      return Arm::ready;
    }
    if (!prefetch) {
      note_touch(request, need.ref);
    }
    // Extents that a request asked to leave are written first: no request waits for a prefetch.
    if (!prefetch || engine_.transfer_of(need.ref)->reason != Reason::asked) {
      engine_.recall(need);
    }
    return Arm::wait_transfer;
  }
  if (need.space != kHost) {
    // Two spaces will know of the bytes. This comes before the checks whether the buffer is spare:
    // a later free finds it booked.
    (void)directory_.word(kHost, need.ref).note_known_elsewhere();
  }
  const ExtentBits bits = directory_.word(need.space, need.ref).load();
  if (bits.readable()) {
    // Shared, and the request writes: the other spaces' copies must go. They carry the same bytes.
    for (unsigned other = 0; need.writes && other < directory_.spaces(); ++other) {
      if (other != need.space && directory_.readable(need.ref, other) &&
          !engine_.leave(need.ref, other, true)) {
        return extent.transfer != 0 ? Arm::wait_transfer : Arm::wait_pins;
      }
    }
    if (extent.transfer == 0 && !needs_.ready(need)) {
      engine_.start_show(need);
    }
    return extent.transfer != 0 ? Arm::wait_transfer : Arm::ready;
  }
  if (!prefetch &&
      (directory_.claimed(need.ref, need.space) || (extent.charged && !need.charged))) {
    return Arm::wait_pins;
  }
  if (prefetch && memories_.lost(need.space)) {
    return Arm::ready;
  }
  if (prefetch) {
    const bool full = waiters_.prefetches() + engine_.prefetches() >= 65536;
    return needs_.nothing_to_read(need) || full ? Arm::ready : Arm::queued;
  }
  const unsigned source = directory_.readable_elsewhere(need.ref, need.space);
  if (source != kNoSpace && memories_.of(source, directory_.frame(source, need.ref)).tier->lost()) {
    if (need.discard || !directory_.word(source, need.ref).load().dirty()) {
      return Arm::wait_pins;  // Until it is let go there.
    }
    extent.lost_with = memories_.of(source, directory_.frame(source, need.ref)).index & 0xf;
    fail_request(request, refusals_.no_bytes(need.ref));
    return Arm::ready;
  }
  if (directory_.word(kHost, need.ref).load().phase() == Phase::lost && !need.discard) {
    fail_request(request, refusals_.no_bytes(need.ref));
    return Arm::ready;
  }
  // Not if it is dirty: then it has been taken into use since, and written.
  if (directory_.word(kHost, need.ref).load().phase() == Phase::vacant &&
      (!engine_.leave(need.ref, kHost, false) || extent.transfer != 0)) {
    return extent.transfer != 0 ? Arm::wait_transfer : Arm::wait_pins;
  }
  if (need.has_room() && !room_.room_fits(need)) {
    room_.give_room(need);
  }
  if (!need.has_room()) {
    // It had a copy when room was reserved and has none now (another request's write took it away).
    const Room::Lack lack = room_.lack_of(need);
    if (!room_.take_room(need)) {
      room_.make_room(need.space, lack, Priority::room);
      (void)room_.take_room(need);  // A clean victim may have left at once.
    }
    if (!need.has_room() && !(room_.searched(need.space, lack) && take_back_for(need))) {
      if (room_.searched(need.space, lack) && refusals_.nothing_will_change(request)) {
        fail_request(request, refusals_.no_room(&request, need.space, lack.bytes));
        return Arm::ready;
      }
      room_.note_shortage(need.space, lack);
      request.short_of_room = true;
      memories_.set_awaited(need.space);
      seeks_ = seeks_ || room_.seeks(need.space);
      return Arm::wait_pins;
    }
  }
  // With a copy in another space the bytes come along: giving that copy up first could lose them.
  // Bytes of a mapped extent may not be given up either, because other threads may touch them.
  need.discard = need.discard && directory_.readable_elsewhere(need.ref, need.space) == kNoSpace &&
                 (!directory_.mapped(need.ref) ||
                  directory_.word(kHost, need.ref).load().phase() == Phase::lost);
  if (need.discard) {
    return Arm::ready;  // Last of all: park_discards.
  }
  engine_.start_promote(need, Priority::demand);
  note_touch(request, need.ref);
  return needs_.ready(need) || (extent.transfer != 0 && engine_.lets_in(request, need))
             ? Arm::ready
             : Arm::wait_transfer;
}

// Returns whether only touches hold the extent, and their pages have come: their requests end with
// this step. Any other holder may wait for a view of the thread that evicts.
bool Desk::touches_end(ExtentRef ref) const {
  std::uint32_t touches = 0;
  for (const Request* request : active_) {
    const bool touch = request->kind == RequestKind::acquire && request->views == nullptr &&
                       request->needs.size() == 1 && request->needs[0].ref == ref;
    touches += touch && request->needs[0].held && needs_.ready(request->needs[0]) ? 1 : 0;
  }
  return touches == directory_.at(ref).holds;
}

// A pinned copy was not given up. If another copy has gone, so has the slot, and the pinned copy is
// the only one.
void Desk::keep_refused(ExtentRef ref) {
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (!directory_.owns_slot(ref) && directory_.readable(ref, space)) {
      directory_.word(space, ref).set_dirty();
    }
  }
}

// Evict, clean, discard and free: the extent's copies go down or away.
Desk::Arm Desk::arm_leave(Request& request, Need& need) {
  Extent& extent = directory_.at(need.ref);
  if (extent.transfer != 0) {
    return Arm::wait_transfer;
  }
  const bool drop = request.kind == RequestKind::free || request.kind == RequestKind::discard;
  const Journal::ReasonScope leaving(journal_, drop ? Reason::given_up : Reason::asked);
  if (directory_.claimed(need.ref, kHost)) {
    return Arm::wait_pins;
  }
  if (request.kind == RequestKind::discard && need.pages != 0) {
    return empty_pages(request, need);
  }
  if (directory_.word(kHost, need.ref).load().phase() == Phase::vacant) {
    if (request.kind == RequestKind::discard || request.kind == RequestKind::clean ||
        engine_.leave(need.ref, kHost, false)) {
      return extent.transfer != 0 ? Arm::wait_transfer : Arm::ready;
    }
    return Arm::wait_pins;
  }
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    const ExtentBits bits = directory_.bits(space, need.ref);
    if (!bits.readable() && extent.parts == 0) {
      continue;
    }
    if (extent.charged) {
      return Arm::wait_pins;  // More of it is about to come.
    }
    if (request.kind == RequestKind::clean) {
      if (bits.dirty() && !need.tried &&
          engine_.start_demote(need.ref, space, false, Priority::background)) {
        need.tried = directory_.mapped(need.ref);  // Back in its window it counts as dirty again.
        return Arm::wait_transfer;
      }
      continue;
    }
    if (drop && engine_.leave(need.ref, space, true)) {
      // At once, before another request can bring the slot's older bytes back as the newest.
      engine_.copies().drop_slot(need.ref);
      if (extent.transfer != 0) {
        return Arm::wait_transfer;
      }
      continue;
    }
    if (drop && request.kind == RequestKind::free) {
      return Arm::wait_pins;
    }
    if (!drop && need.tried) {
      continue;  // It left, and was touched again.
    }
    if (!drop && extent.holds == 0 && engine_.start_evict(need.ref, space, Priority::demand)) {
      need.tried = directory_.touchable(need.ref);
      if (extent.transfer != 0) {
        return Arm::wait_transfer;
      }
      continue;
    }
    if (!drop && !bits.pinned() && extent.holds != 0 && touches_end(need.ref)) {
      look_again_ = true;
      return Arm::wait_pins;
    }
    if (request.status.ok()) {
      ErrorInfo info = engine_.slots().last_error();
      if (bits.pinned() || extent.holds != 0 || info.code == Code::ok) {
        const char* why = bits.pinned()       ? "is pinned by a view"
                          : extent.holds != 0 ? "is wanted by a request or a touch"
                                              : "cannot leave now";
        info = error_info(Code::busy, "an extent of buffer '{}' {}, and stays where it is; {}",
                          directory_.record_of(need.ref).label.get().view(), why,
                          bits.pinned() ? "release its views" : "try again");
      }
      request.status = Status(info);
    }
  }
  if (drop && directory_.readable_elsewhere(need.ref, kNoSpace) != kNoSpace) {
    keep_refused(need.ref);
  } else if (drop) {
    engine_.copies().drop_slot(need.ref);
    ExtentWord& host = directory_.word(kHost, need.ref);
    host.clear_dirty();
    if (request.kind == RequestKind::discard && host.load().phase() != Phase::zero) {
      host.set_phase(directory_.has_slot_copy(need.ref) ? Phase::none : Phase::zero);
    }
  }
  return Arm::ready;
}

Desk::Arm Desk::arm_gather(Request& request, const Need& need) {
  const std::span<GatherRead> reads = GatherNeeds::reads_of(request, need.ref);
  if (reads.front().found != GatherRead::Found::nothing) {
    return Arm::ready;
  }
  if (const Span* stale = Needs::stale_span(request)) {
    // Freed without the mover: the extents may be in their next life.
    fail_request(request, fail(Code::stale_handle,
                               "handle {:#x} was freed while it was read; free it after the call",
                               stale->buffer));
    return Arm::ready;
  }
  if (request.gather->known) {
    gather_needs_.compare_known(need.ref, reads);
    return Arm::ready;
  }
  if (directory_.at(need.ref).transfer != 0) {
    return Arm::wait_transfer;
  }
  if (directory_.claimed(need.ref, kHost)) {
    return Arm::wait_pins;
  }
  const GatherRead::Found found = gather_needs_.look(need.ref, reads);
  if (found == GatherRead::Found::bytes) {
    engine_.start_gather(request, reads);
    return Arm::wait_transfer;
  }
  for (GatherRead& read : reads) {
    read.found = found;
  }
  return Arm::ready;
}

// The pages read as zeros from now on, without I/O, and the slot's bytes for them are void. If the
// extent is in memory as a whole, the caller overwrites them instead. The extent has no transfer.
Desk::Arm Desk::empty_pages(Request& request, Need& need) {
  const ExtentRef ref = need.ref;
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(kHost, ref);
  if (extent.charged) {
    return Arm::wait_pins;  // More of it is about to come.
  }
  const bool in_slot = word.load().phase() == Phase::none && directory_.in_slot(ref);
  const PageMask there = extent.parts & need.pages;
  if ((!in_slot && word.load().phase() != Phase::zero) || (there != 0 && need.tried)) {
    return Arm::ready;
  }
  if (there != 0) {
    // Set now: the first request after they have gone must not bring the slot's older bytes.
    extent.zeros |= there;
    need.tried = true;
    there == extent.parts ? (void)engine_.leave(ref, kHost, true) : engine_.start_empty(ref, there);
    return Arm::wait_transfer;
  }
  if (in_slot) {
    extent.zeros |= need.pages;
    if (extent.parts == 0 && (~zero_pages(extent) & pages_of(directory_.bytes_of(ref))) == 0) {
      engine_.copies().drop_slot(ref);
      word.set_phase(Phase::zero);
    }
  }
  for (Span& span : request.spans) {
    for (const std::uint32_t i : {0u, span.count - 1}) {
      if (span.first + i == ref && !span.whole(i) && needs_.pages_discarded(span, i) != 0) {
        span.set_emptied(i);
      }
    }
  }
  return Arm::ready;
}

}  // namespace tiermem

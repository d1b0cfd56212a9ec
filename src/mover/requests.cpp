// Requests: from needs that are ready to a pinned whole. Holds, waiters, completion.
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "mover/desk.hpp"

namespace tiermem {

void Desk::maybe_finish(Request& request) {
  if (request.state != Request::State::loading || request.pending != 0 ||
      request.armed < request.needs.size()) {
    return;
  }
  switch (request.kind) {
    case RequestKind::acquire:
      finish_acquire(request);
      return;
    case RequestKind::free:
      finish_free(request);
      return;
    case RequestKind::release_memory:
      begin_giving_back(request);
      return;
    default:
      complete(request, std::move(request.status));
      return;
  }
}

// Every need is ready, but for those that are discarded. Pins all, in one step, or goes back to
// waiting.
void Desk::finish_acquire(Request& request) {
  if (const Span* stale = Needs::stale_span(request)) {
    // Before anything is done to the extents: they may be in their next life.
    fail_request(request,
                 fail(Code::stale_handle,
                      "handle {:#x} was freed while it was acquired; free it after the call",
                      stale->buffer));
    return;
  }
  bool discards = false;
  for (std::uint32_t i = 0; i < request.needs.size(); ++i) {
    Need& need = request.needs[i];
    if (needs_.ready(need)) {
      continue;
    }
    const Extent& extent = directory_.at(need.ref);
    const bool parked = engine_.is_parked(request, need.ref);
    const bool may_park = extent.transfer == 0 && need.frame.valid() &&
                          !directory_.readable(need.ref, need.space) &&
                          directory_.readable_elsewhere(need.ref, need.space) == kNoSpace;
    if (need.discard && (parked || may_park)) {
      discards = discards || !parked;
      continue;
    }
    arm(request, i);  // Taken away since it was ready.
    if (request.state == Request::State::done) {
      return;
    }
  }
  if (request.pending != 0) {
    return;
  }
  if (discards) {
    park_discards(request);
    if (request.state == Request::State::done || request.pending != 0 || parking_ != &request) {
      return;
    }
  }
  if (!fill_views(request)) {
    return;
  }
  for (const Need& need : request.needs) {
    engine_.publish_parked(request, need.ref);
  }
  leave_parking(request);
  for (const Need& need : request.needs) {
    engine_.copies().prefetch_used(need.ref);
  }
  let_go(request);
  complete(request, {});
}

// Pins all extents, staged discards included. To publish those first would wake other requests,
// which could take them before they are pinned; their bytes would be lost in vain. Returns false if
// the request has failed; nothing was overwritten then.
bool Desk::fill_views(Request& request) {
  for (const Need& need : request.needs) {
    engine_.give_place(request, need.ref);
  }
  for (std::size_t i = 0; i < request.spans.size(); ++i) {
    const Span& span = request.spans[i];
    if (request.views == nullptr) {
      directory_.word(span.space, span.first).touch();
      continue;
    }
    const bool pinned = pin_for(request, span);
    if (pinned && residency_.fill_view(span, request.views[i], request.thread)) {
      continue;
    }
    if (pinned) {
      residency_.unpin(span.run());
    }
    (void)residency_.release({request.views, i});
    for (const Need& need : request.needs) {
      if (engine_.parked_for(request, need.ref) != nullptr) {
        directory_.frame(need.space, need.ref) = {};
        directory_.word(need.space, need.ref).clear_dirty();
      }
    }
    const bool stale = span.stale();
    fail_request(
        request,
        stale    ? fail(Code::stale_handle,
                        "handle {:#x} was freed while it was acquired; free it after the call",
                        span.buffer)
        : pinned ? fail(Code::no_capacity,
                        "{} views are held at once, and no more can be noted; release some",
                        residency_.views.count())
                 : fail(Code::no_capacity,
                        "acquire: {} views pin the same extent, which is the maximum; release some",
                        std::uint32_t{ExtentBits::kMaxReaders}));
    return false;
  }
  return true;
}

// One request at a time prepares the extents that it will overwrite. It waits only for its own jobs
// and for the ends of other transfers, so two of them cannot wait for each other.
void Desk::park_discards(Request& request) {
  if (parking_ != nullptr && parking_ != &request) {
    if (std::find(parking_queue_.begin(), parking_queue_.end(), &request) == parking_queue_.end()) {
      parking_queue_.push_back(&request);
    }
    return;
  }
  parking_ = &request;
  for (std::uint32_t i = 0; i < request.needs.size(); ++i) {
    Need& need = request.needs[i];
    if (!need.discard || needs_.ready(need) || directory_.at(need.ref).transfer != 0) {
      continue;
    }
    const FrameId frame = need.frame;
    need.frame = {};
    engine_.start_promote(need.ref, need.space, frame, Priority::demand, &request, need.shown);
    if (directory_.at(need.ref).transfer != 0 && !engine_.is_parked(request, need.ref)) {
      waiters_.wait_for_transfer(request, i);
    }
  }
}

// Gives up what it has prepared; what is still under way is given up when it has landed.
void Desk::unpark(Request& request) {
  for (const Need& need : request.needs) {
    engine_.unpark(request, need.ref);
  }
  leave_parking(request);
}

void Desk::leave_parking(Request& request) {
  std::erase(parking_queue_, &request);
  if (parking_ != &request) {
    return;
  }
  parking_ = nullptr;  // Not the next from here: the caller is in the middle of its own.
}

// Looks at the first request of the queue again. If it must wait once more, or ends before, the
// next one follows.
bool Desk::arm_next_to_park() {
  if (!parking_waits()) {
    return false;
  }
  ++work_;
  Request& next = *parking_queue_.front();
  parking_queue_.pop_front();
  next.armed = static_cast<std::uint32_t>(next.needs.size());
  arming_.push_back(&next);
  return true;
}

void Desk::finish_free(Request& request) {
  BufferRecord& record = residency_.buffers.at(request.index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  const std::uint32_t count = record.extents.load(std::memory_order_relaxed);
  directory_.each_begun(first, first + count, [&](ExtentRef ref) {
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      for (MemoryLedger* const memory : memories_.in(space)) {
        if (ref < memory->recency.capacity()) {
          memory->recency.removed(ref, false);
        }
      }
      directory_.word(space, ref).end_life();
    }
    directory_.at(ref) = Extent{};
  });
  residency_.extents.end_run(first, first + count);
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (std::byte* const window = residency_.buffers.take_window(request.index, space)) {
      memories_.space(space).release_window(
          window, std::uint64_t{count} << record.extent_shift.load(std::memory_order_relaxed));
    }
  }
  if (record.adopted()) {
    engine_.slots().at(kFileTier).ledger.free(record.first_slot());
  }
  residency_.buffers.retire(request.index);
  complete(request, {});
}

// Lets the waiters look again. Bytes that could not be written are where they were, so requests
// that want them there get no error.
void Desk::wake_waiters(const Ended& ended) {
  const bool failed = !ended.error.ok();
  for (auto [request, index] : waiters_.take(ended)) {
    // Each is counted as waiting until its turn: an earlier one may end its request.
    if (!Waiters::stop(*request, index)) {
      continue;
    }
    const Need& need = request->needs[index];
    if (failed && ended.failed != Ended::Failed::to_leave &&
        request->kind == RequestKind::acquire &&
        !(ended.failed == Ended::Failed::to_read && need.discard) && need.space == ended.space &&
        !needs_.ready(need)) {
      fail_request(*request, ended.error.clone());
      continue;
    }
    const bool leaves = request->kind == RequestKind::evict ||
                        request->kind == RequestKind::clean ||
                        request->kind == RequestKind::release_memory;
    if (failed && leaves) {
      if (request->status.ok()) {
        request->status = ended.error.clone();
      }
    } else if (!(failed && request->kind == RequestKind::prefetch)) {
      if (!need.discard || engine_.parked_for(*request, ended.ref) == nullptr) {
        arm(*request, index);
      }
    }
    maybe_finish(*request);
  }
}

// The place of the step at which transfers and requests go on after the ends of transfers. Returns
// whether any did.
bool Desk::serve_ended() {
  bool any = false;
  for (; engine_.grant_places() || !engine_.ended().empty(); any = true) {
    for (const Ended& ended : engine_.take_ended()) {
      wake_waiters(ended);
    }
  }
  return any;
}

void Desk::retry_pin_waiters() {
  memories_.clear_awaited();  // Requests that still lack room set it again.
  for (auto [request, index] : waiters_.take_for_pins()) {
    if (Waiters::stop(*request, index)) {
      arm(*request, index);
      maybe_finish(*request);
    }
  }
}

void Desk::hold(Need& need) {
  if (!need.held) {
    need.held = true;
    ++directory_.at(need.ref).holds;
    engine_.desert_destage(need.ref);
  }
}

void Desk::unhold(Need& need) {
  if (need.held) {
    need.held = false;
    --directory_.at(need.ref).holds;
  }
}

// Holds end and reserved frames go back.
void Desk::let_go(Request& request) {
  for (Need& need : request.needs) {
    unhold(need);
    room_.give_room(need);
  }
}

void Desk::fail_request(Request& request, Status status) {
  assert(request.kind != RequestKind::free);
  waiters_.forget(request);
  std::erase(arming_, &request);
  if (engine_.desert_gather(request)) {
    await_reads(request, std::move(status));
    return;
  }
  std::erase(giving_back_, &request);
  if (request.state == Request::State::room) {
    std::erase(room_queue_, &request);
  }
  if (&request == budget_request_) {
    budget_request_ = nullptr;
    room_.undo_budget_change();
  }
  unpark(request);
  let_go(request);
  complete(request, std::move(status));
}

// The gather has failed, and devices read to the program's memory for it. It is complete when they
// have ended.
void Desk::await_reads(Request& request, Status status) {
  request.ending = true;
  request.status = std::move(status);
  request.deadline_ns = Request::kForever;
  request.armed = static_cast<std::uint32_t>(request.needs.size());
  request.pending = 0;
  for (std::uint32_t i = 0; i < request.needs.size(); ++i) {
    if (engine_.reads_for(request, request.needs[i].ref)) {
      waiters_.wait_for_transfer(request, i);
    }
  }
}

bool Desk::pin_for(Request& request, const Span& span) {
  if ((!request.for_stream || span.space == kHost) && parking_ != &request) {
    return residency_.pin(span);
  }
  for (std::uint32_t i = 0; i < span.count; ++i) {
    Span one = span;
    one.first += i;
    one.count = 1;
    const bool incoming = directory_.word(one.space, one.first).load().phase() == Phase::incoming;
    if (!(incoming ? engine_.pin_incoming(request, one) : residency_.pin(one))) {
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

void Desk::complete(Request& request, Status status) {
  request.status = std::move(status);
  request.state = Request::State::done;
  journal_.note_activity();
  active_[request.at] = active_.back();
  active_[request.at]->at = request.at;
  active_.pop_back();
  for (const Span& span : request.spans) {
    --span.record->active_spans;
  }
  engine_.note_requests(active_.size());
  completed_.push_back(&request);
}

}  // namespace tiermem

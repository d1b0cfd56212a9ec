// Requests: from needs that are ready to a pinned whole. Holds, waiters, completion.
#include <algorithm>
#include <cassert>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

void Mover::maybe_finish(Request& request) {
  if (request.state != Request::State::loading || request.pending != 0 ||
      request.armed < request.needs.size()) {
    return;
  }
  switch (request.want) {
    case Want::acquire:
      finish_acquire(request);
      return;
    case Want::free:
      finish_free(request);
      return;
    case Want::retreat:
      begin_giving_back(request);
      return;
    default: {
      Status status = std::move(request.status);
      complete(request, std::move(status));
      return;
    }
  }
}

// Every need is ready, but for those that are discarded. Pins all, in one step, or goes back to
// waiting.
void Mover::finish_acquire(Request& request) {
  if (const Span* stale = Needs::stale_span(request)) {
    // Before anything is done to the extents: they may be in their next life.
    fail_request(request, fail(Code::stale_handle, "handle {:#x} was freed while it was acquired",
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
    const Transfer* const mine = engine_.parked_for(request, need.ref);
    const bool parked = mine != nullptr && mine->stage == Transfer::Stage::parked;
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
    if (Transfer* const parked = engine_.parked_for(request, need.ref)) {
      engine_.publish(*parked);
    }
  }
  leave_parking(request);
  for (const Need& need : request.needs) {
    engine_.prefetch_used(need.ref, memories_[kHost]);
  }
  let_go(request);
  complete(request, {});
}

// Pins all extents, staged discards included. To publish those first would wake other requests,
// which could take them before they are pinned; their bytes would be lost in vain. Returns false if
// the request has failed; nothing was overwritten then.
bool Mover::fill_views(Request& request) {
  for (const Need& need : request.needs) {
    if (const Transfer* const parked = engine_.parked_for(request, need.ref)) {
      engine_.give_place(*parked);
    }
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
    const bool stale = span.record->generation.load() != Buffers::generation_of(span.buffer);
    fail_request(request, stale    ? fail(Code::stale_handle,
                                          "handle {:#x} was freed while it was acquired", span.buffer)
                          : pinned ? fail(Code::no_capacity,
                                          "{} views are held at once, and no more can be noted",
                                          residency_.views.count())
                                   : fail(Code::busy, "too many views pin the same extent"));
    return false;
  }
  return true;
}

// One request at a time prepares the extents that it will overwrite. It waits only for its own jobs
// and for the ends of other transfers, so two of them cannot wait for each other.
void Mover::park_discards(Request& request) {
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
    engine_.start_promote(need.ref, need.space, frame, Priority::demand, &request, 0, need.shown);
    const Transfer* const transfer = engine_.transfer_of(need.ref);
    if (transfer != nullptr && transfer->stage != Transfer::Stage::parked) {
      ++request.pending;
      need.waiting = true;
      wait_for(request, i, need.ref);
    }
  }
}

// Gives up what it has prepared; what is still under way is given up when it has landed.
void Mover::unpark(Request& request) {
  for (const Need& need : request.needs) {
    if (Transfer* const mine = engine_.parked_for(request, need.ref)) {
      mine->parked_for = nullptr;
      if (mine->stage == Transfer::Stage::parked) {
        engine_.undo_promote(*mine, nullptr);
      }
    }
  }
  leave_parking(request);
}

void Mover::leave_parking(Request& request) {
  std::erase(parking_queue_, &request);
  if (parking_ != &request) {
    return;
  }
  parking_ = nullptr;  // Not the next from here: the caller is in the middle of its own.
}

// Looks at the first request of the queue again. If it must wait once more, or ends before, the
// next one follows.
bool Mover::arm_next_to_park() {
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

void Mover::finish_free(Request& request) {
  BufferRecord& record = residency_.buffers.at(request.index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  const std::uint32_t count = record.extents.load(std::memory_order_relaxed);
  directory_.each_begun(first, first + count, [&](ExtentRef ref) {
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      if (Recency& recency = memories_[space].recency; ref < recency.capacity()) {
        recency.removed(ref, false);
      }
      directory_.word(space, ref).end_life();
    }
    directory_.at(ref) = Extent{};
  });
  residency_.extents.end_run(first, first + count);
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (std::byte* const window = residency_.buffers.take_window(request.index, space)) {
      memories_[space].tier->release_window(
          window, std::uint64_t{count} << record.extent_shift.load(std::memory_order_relaxed));
    }
  }
  if (record.file != 0) {
    engine_.file_slots().free({record.file - 1});
  }
  residency_.buffers.retire(request.index);
  complete(request, {});
}

void Mover::wait_for(Request& request, std::uint32_t index, ExtentRef ref) {
  std::uint32_t at = 0;
  if (!free_waiters_.empty()) {
    at = free_waiters_.back();
    free_waiters_.pop_back();
  } else {
    at = static_cast<std::uint32_t>(waiters_.size());
    waiters_.emplace_back();
  }
  Extent& extent = directory_.at(ref);
  waiters_[at] = {&request, index, extent.waiters, engine_.ended().count()};
  extent.waiters = at + 1;
}

void Mover::wait_for_pins(Request& request, std::uint32_t index) {
  pin_waiters_.emplace_back(&request, index);
  engine_.watch(request.needs[index].ref);
}

void Mover::forget_waits(Request& request) {
  bool in_lists = false;
  for (Need& need : request.needs) {
    if (!need.waiting) {
      continue;
    }
    need.waiting = false;
    std::uint32_t* link = &directory_.at(need.ref).waiters;
    while (*link != 0) {
      const std::uint32_t at = *link - 1;
      if (waiters_[at].request == &request) {
        *link = waiters_[at].next;
        free_waiters_.push_back(at);
      } else {
        link = &waiters_[at].next;
      }
    }
    in_lists = true;
  }
  if (in_lists) {
    const auto ours = [&](const auto& entry) { return entry.first == &request; };
    std::erase_if(pin_waiters_, [&](const Woken& waiter) {
      if (ours(waiter)) {
        engine_.unwatch(request.needs[waiter.second].ref);
      }
      return ours(waiter);
    });
    std::erase_if(prefetch_queue_, ours);
  }
  std::erase(arming_, &request);
}

// Takes the waiters that the end wakes off the list of the extent, oldest first.
Vector<Mover::Woken> Mover::take_waiters(const Ended& ended) {
  Vector<Woken> woken;
  for (std::uint32_t* link = &directory_.at(ended.ref).waiters; *link != 0;) {
    const std::uint32_t at = *link - 1;
    const Waiter& waiter = waiters_[at];
    if (waiter.since >= ended.number || (ended.begun && !waiter.request->for_stream)) {
      link = &waiters_[at].next;
      continue;
    }
    woken.emplace_back(waiter.request, waiter.need);
    *link = waiter.next;
    free_waiters_.push_back(at);
  }
  std::reverse(woken.begin(), woken.end());  // The list is newest first.
  return woken;
}

// Lets the waiters look again. Bytes that could not be written are where they were, so requests
// that want them there get no error.
void Mover::wake_waiters(const Ended& ended) {
  const bool failed = !ended.error.ok();
  for (auto [request, index] : take_waiters(ended)) {
    // Each is counted as waiting until its turn: an earlier one may end its request.
    if (!stop_waiting(*request, index)) {
      continue;
    }
    const Need& need = request->needs[index];
    if (failed && ended.failed != Ended::Failed::to_leave && request->want == Want::acquire &&
        !(ended.failed == Ended::Failed::to_read && need.discard) && need.space == ended.space &&
        !needs_.ready(need)) {
      fail_request(*request, ended.error.clone());
      continue;
    }
    const bool leaves = request->want == Want::evict || request->want == Want::clean ||
                        request->want == Want::retreat;
    if (failed && leaves) {
      if (request->status.ok()) {
        request->status = ended.error.clone();
      }
    } else if (!(failed && request->want == Want::prefetch)) {
      if (!need.discard || engine_.parked_for(*request, ended.ref) == nullptr) {
        arm(*request, index);
      }
    }
    if (request->state != Request::State::done) {
      maybe_finish(*request);
    }
  }
}

// The place of the step at which transfers and requests go on after the ends of transfers. Returns
// whether any did.
bool Mover::serve_ended() {
  bool any = false;
  for (; engine_.grant_places() || !engine_.ended().empty(); any = true) {
    for (const Ended& ended : engine_.take_ended()) {
      wake_waiters(ended);
    }
  }
  return any;
}

void Mover::retry_pin_waiters() {
  for (Memory& memory : memories_) {
    memory.awaited = false;  // Requests that still lack room set it again.
  }
  if (pin_waiters_.empty()) {
    return;
  }
  Vector<Woken> again;
  again.swap(pin_waiters_);
  engine_.unwatch_all();
  for (auto [request, index] : again) {
    if (stop_waiting(*request, index)) {
      arm(*request, index);
      if (request->state != Request::State::done) {
        maybe_finish(*request);
      }
    }
  }
}

bool Mover::stop_waiting(Request& request, std::uint32_t index) {
  if (request.state == Request::State::done || !request.needs[index].waiting) {
    return false;
  }
  request.needs[index].waiting = false;
  --request.pending;
  return true;
}

void Mover::hold(Need& need) {
  if (!need.held) {
    need.held = true;
    ++directory_.at(need.ref).holds;
  }
}

void Mover::unhold(Need& need) {
  if (need.held) {
    need.held = false;
    --directory_.at(need.ref).holds;
  }
}

// Holds end and reserved frames go back.
void Mover::let_go(Request& request) {
  for (Need& need : request.needs) {
    unhold(need);
    room_.give_room(need);
  }
}

void Mover::fail_request(Request& request, Status status) {
  assert(request.want != Want::free);
  forget_waits(request);
  engine_.desert_gather(request);
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

void Mover::advise(Request& request) {
  // These are flags of the record, and hold for an extent that is absent.
  const bool lasts = request.advice == Advice::streamed || request.advice == Advice::keep;
  for (const Span& span : request.spans) {
    // An extent that has not begun is in no order. Advice about the order passes it by, so that
    // such advice for a reservation of terabytes needs no memory for records.
    const auto each = [&](const auto& visit) {
      if (!lasts) {
        directory_.each_begun(span.first, span.first + span.count, visit);
        return;
      }
      for (std::uint32_t i = 0; i < span.count; ++i) {
        visit(span.first + i);
      }
    };
    // Advice is for this life only: booked first, since a free that found it otherwise has changed
    // the generation.
    each([&](ExtentRef ref) { (void)directory_.word(span.space, ref).book(); });
    if (span.record->generation.load(std::memory_order_seq_cst) !=
        Buffers::generation_of(span.buffer)) {
      continue;
    }
    each([&](ExtentRef ref) {
      directory_.begin(span, ref);
      if (room_.find_record(span.space, ref)) {  // Otherwise the advice is lost.
        engine_.recency_for(span.space, ref).advised(ref, request.advice, request.value);
      }
    });
  }
}

void Mover::fill_info(Request& request) {
  BufferInfo& info = *request.info;
  const BufferRecord& record = residency_.buffers.at(request.index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  info.bytes = record.bytes.load(std::memory_order_relaxed);
  info.extent_bytes = std::uint64_t{1} << record.extent_shift.load(std::memory_order_relaxed);
  info.extents = record.extents.load(std::memory_order_relaxed);
  set_text(info.label, record.label.get().view());
  std::uint64_t begun = 0;
  directory_.each_begun(
      first, first + static_cast<std::uint32_t>(info.extents), [&](ExtentRef ref) {
        ++begun;
        const ExtentBits bits = directory_.word(kHost, ref).load();
        if (bits.readable()) {
          info.resident += info.extent_bytes;
          info.dirty += bits.dirty() ? info.extent_bytes : 0;
          info.pinned += bits.pinned() ? info.extent_bytes : 0;
        } else if (directory_.at(ref).parts != 0) {
          info.resident += directory_.resident_bytes(ref);
          info.dirty += directory_.resident_bytes(ref);
          info.in_slots += info.extent_bytes - directory_.resident_bytes(ref);
          return;
        }
        info.in_slots += directory_.slot_is_newest(ref) ? info.extent_bytes : 0;
        info.zero +=
            bits.phase() == Phase::zero || bits.phase() == Phase::vacant ? info.extent_bytes : 0;
        info.lost += bits.phase() == Phase::lost ? info.extent_bytes : 0;
      });
  info.zero += record.file == 0 ? (info.extents - begun) * info.extent_bytes : 0;
}

void Mover::fill_stats(Stats& stats) {
  journal_.fill(stats);
  stats.metadata_bytes = residency_.extents.metadata_bytes();
  const FrameBooks frames = memories_[kHost].tier->books();
  stats.dram_budget = frames.budget;
  stats.dram_used = frames.used();
  stats.dram_pinned = pinned_bytes(kHost);
  for (unsigned space = kHost + 1; space < memories_.size(); ++space) {
    const FrameBooks books = memories_[space].tier->books();
    stats.gpu_budget += books.budget;
    stats.gpu_used += books.used();
    stats.gpu_pinned += pinned_bytes(space);
  }
  if (block_ != nullptr) {
    const SlotBooks slots = block_->books();
    stats.block_budget = slots.budget;
    stats.block_used = slots.in_use;
    stats.degraded_devices = block_->degraded();
  }
  const Spares::Count spares = residency_.spares.count();
  const std::uint64_t making = stock_.under_way();
  const std::uint64_t live = residency_.buffers.live(), extents = residency_.buffers.live_extents();
  stats.buffers = live - std::min(live, spares.buffers + making);
  stats.extents = extents - std::min(extents, spares.extents + making);
}

}  // namespace tiermem

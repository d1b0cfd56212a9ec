// Admission: the first look at a request. Queries are answered at once; every other request joins
// the active ones, or is refused. The stepping thread only; never waits.
#include <algorithm>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "mover/desk.hpp"

namespace tiermem {

void Desk::admit(Request& request) {
  request.admitted_ns = now_;
  request.state = Request::State::loading;
  switch (request.kind) {
    case RequestKind::info:
      queries_.fill_info(request.index, *request.info);
      break;
    case RequestKind::census:
      queries_.fill_census(*request.census);
      break;
    case RequestKind::stats:
      queries_.fill_stats(*request.stats);
      if (request.receipts != nullptr) {
        journal_.copy_receipts(*request.receipts, request.value);
      }
      break;
    case RequestKind::where:
      if (!refuse_stale(request)) {
        queries_.describe_location(request);
      }
      break;
    case RequestKind::advise:
      queries_.advise(request);
      break;
    case RequestKind::move_slots:
      if (!refuse_stale(request)) {
        queries_.move_slots(request, resting_);
      }
      break;
    case RequestKind::stock:
      room_.make_stock(request.value, room_queue_.empty() && !resting_ ? request.index : 0,
                       refuses_);
      break;
    case RequestKind::set_budget:
      admit_budget(request);
      return;
    case RequestKind::drain:
      admit_drain(request);
      return;
    default:
      admit_needs(request);
      return;
  }
  completed_.push_back(&request);
}

// A free may have come between the caller's look at the handle and now. Sets the status then.
bool Desk::refuse_stale(Request& request) {
  const Span* const stale = Needs::stale_span(request);
  if (stale != nullptr) {
    request.status =
        fail(Code::stale_handle, "handle {:#x} was freed during the call; free it after the call",
             stale->buffer);
  }
  return stale != nullptr;
}

void Desk::admit_budget(Request& request) {
  if (budget_request_ != nullptr) {
    request.status =
        fail(Code::busy, "set_budget: another change of a budget is under way; wait for it");
    completed_.push_back(&request);
    return;
  }
  enlist(request);
  if (request.tier.kind == Kind::block) {
    SlotTiers::Entry* const slots = engine_.slots().find(request.tier);
    if (slots != nullptr) {
      slots->ledger.set_budget(request.value);
    }
    complete(request, slots != nullptr
                          ? Status()
                          : fail(Code::unavailable,
                                 "set_budget: there is no block tier {}; name one with {}=",
                                 request.tier.index, request.tier.index == 0 ? "nvme" : "slow"));
    return;
  }
  room_.begin_budget_change(memory_at(request.tier), request.value);
  budget_request_ = &request;
  (void)press_kept(true);
  serve_budget();  // A budget that fits already needs no wait.
}

// Requests that wait for others end here. Transfers in progress end by themselves.
void Desk::admit_drain(Request& request) {
  enlist(request);
  request.pending = 1;
  fail_each([&](const Request& other) -> std::optional<Status> {
    if (&other == &request) {
      return {};
    }
    return fail(Code::shut_down, "the context was closed while the request waited");
  });
}

void Desk::admit_needs(Request& request) {
  if (refuses(request) || !find_records(request)) {
    refuse(request);
    return;
  }
  enlist(request);
  if (request.kind == RequestKind::free) {
    end_requests_for(request.index);
  }
  if (request.kind != RequestKind::acquire && request.kind != RequestKind::prefetch &&
      request.kind != RequestKind::gather) {
    // The effects of such a request on an extent must not reach its next life. If a free made the
    // buffer a spare before this, its generation shows it.
    for (const Need& need : request.needs) {
      (void)directory_.word(need.space, need.ref).note_known_elsewhere();
    }
  }
  if (refuse_stale(request)) {
    complete(request, std::move(request.status));
    return;
  }
  request.kind == RequestKind::acquire ? admit_acquire(request) : activate(request);
}

void Desk::admit_acquire(Request& request) {
  if (writes_in_two_spaces(request)) {
    complete(request, fail(Code::invalid_argument,
                           "acquire: the list names the same bytes in two address spaces and "
                           "writes one of them; split the list"));
    return;
  }
  if (const MemoryLedger* const lost = wants_lost(request)) {
    complete(request, Refusals::lost(*lost));
    return;
  }
  journal_.count(&Stats::misses);
  journal_.count(&Stats::demanded, needs_.demanded_bytes(request));
  for (const Need& need : request.needs) {
    if (!resting_ && directory_.word(kHost, need.ref).load().phase() == Phase::vacant) {
      (void)engine_.leave(need.ref, kHost, false);  // A held extent could not return its frame.
    }
    engine_.recall(need);
  }
  request.was_there = request.in_parts && needs_.ready(request.needs.front());
  request.state = Request::State::room;
  room_queue_.push_back(&request);
}

// Allocates all records that grow with the request, before anything is done for it. Bytes that
// leave a device may come to the host.
bool Desk::find_records(Request& request) {
  try {
    needs_.build(request);
  } catch (const std::bad_alloc&) {
    return false;
  }
  const bool brings = request.kind == RequestKind::acquire || request.kind == RequestKind::prefetch;
  return !brings || std::all_of(request.needs.begin(), request.needs.end(), [&](const Need& need) {
    return room_.find_record(kHost, need.ref) && room_.find_record(need.space, need.ref);
  });
}

void Desk::enlist(Request& request) {
  request.at = static_cast<std::uint32_t>(active_.size());
  active_.push_back(&request);
  for (const Span& span : request.spans) {
    ++span.record->active_spans;
  }
  engine_.note_requests(active_.size());
  next_deadline_ = std::min(next_deadline_, request.deadline_ns);
}

// A write needs the only copy: such a list can never be met.
bool Desk::writes_in_two_spaces(const Request& request) {
  const auto& needs = request.needs;  // Sorted by space, then extent.
  const auto second = std::find_if(needs.begin(), needs.end(),
                                   [&](const Need& n) { return n.space != needs[0].space; });
  for (auto other = second; other != needs.end(); ++other) {
    for (auto need = needs.begin(); need != other; ++need) {
      if (need->ref == other->ref && need->space != other->space &&
          (need->writes || other->writes)) {
        return true;
      }
    }
  }
  return false;
}

// Requests that still wait for bytes of a freed buffer fail with a stale handle. Most often there
// are none, and the cost of a free must not grow with the number of other requests.
void Desk::end_requests_for(std::uint32_t index) {
  if (residency_.buffers.at(index).active_spans == 0) {
    return;
  }
  fail_each([&](const Request& request) -> std::optional<Status> {
    const auto span = std::find_if(request.spans.begin(), request.spans.end(), [&](const Span& s) {
      return s.record == &residency_.buffers.at(index);
    });
    if (span == request.spans.end()) {
      return {};
    }
    return fail(Code::stale_handle,
                "handle {:#x} was freed while a request waited for it; free it after the call",
                span->buffer);
  });
}

// Touches are as many as there are threads, and frees give memory back.
bool Desk::refuses(const Request& request) const {
  const bool touch = request.kind == RequestKind::acquire && request.views == nullptr;
  return refuses_ && request.kind != RequestKind::free && !touch;
}

void Desk::refuse(Request& request) {
  if (request.kind == RequestKind::free) {
    residency_.buffers.abandon(request.index);  // A later step tries again: what is freed is freed.
  }
  if (request.kind != RequestKind::prefetch) {
    request.status = refusals_.no_records();
  }
  request.state = Request::State::done;
  completed_.push_back(&request);
}

const MemoryLedger* Desk::wants_lost(const Request& request) const {
  const auto need = std::find_if(request.needs.begin(), request.needs.end(),
                                 [&](const Need& each) { return memories_.lost(each.space); });
  return need == request.needs.end() ? nullptr : &memories_.first(need->space);
}

// Returns the host's first memory if no memory has this place.
MemoryLedger& Desk::memory_at(Place place) {
  for (MemoryLedger& memory : memories_) {
    if (memory.tier->place() == place) {
      return memory;
    }
  }
  return memories_.first(kHost);
}

}  // namespace tiermem

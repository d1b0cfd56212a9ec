#include "mover/desk.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/error.hpp"

namespace tiermem {

Desk::Desk(Residency& residency, Memories& memories, Journal& journal, ReadAhead& read_ahead,
           TransferEngine& engine, const Needs& needs, const GatherNeeds& gather_needs, Room& room,
           const Refusals& refusals, Queries& queries, Workers& workers, unsigned prefetch_limit)
    : residency_(residency),
      directory_(residency),
      memories_(memories),
      journal_(journal),
      read_ahead_(read_ahead),
      engine_(engine),
      needs_(needs),
      gather_needs_(gather_needs),
      room_(room),
      refusals_(refusals),
      queries_(queries),
      workers_(workers),
      prefetch_limit_(prefetch_limit),
      waiters_(directory_, engine) {}

void Desk::begin_step(std::int64_t now) {
  now_ = now;
  work_ = 0;
  look_again_ = false;
  seeks_ = false;
}

void Desk::unpark_all() {
  if (parking_ != nullptr) {
    unpark(*parking_);
  }
}

void Desk::serve_arming() {
  while ((!arming_.empty() || arm_next_to_park()) && work_ < 4096) {
    Request& request = *arming_.back();
    arming_.pop_back();
    arm_more(request);
  }
}

void Desk::check_deadlines() {
  // Acquire: pairs with note_cancel, before which `cancel` was set.
  const bool cancels = cancels_.exchange(false, std::memory_order_acquire);
  if (!cancels && now_ < next_deadline_) {
    return;
  }
  fail_each([&](Request& request) -> std::optional<Status> {
    if (request.cancel.load(std::memory_order_relaxed) ||
        (request.cancel_with != nullptr && request.cancel_with->load(std::memory_order_relaxed))) {
      return fail(Code::cancelled, "operation: cancelled by its owner");
    }
    if (now_ >= request.deadline_ns) {
      return refusals_.late(request);
    }
    return {};
  });
  next_deadline_ = kNever;
  for (const Request* request : active_) {
    next_deadline_ = std::min(next_deadline_, request->deadline_ns);
  }
}

void Desk::deliver() {
  if (engine_.live() == 0 && engine_.housekeeping() == 0) {
    for (std::size_t i = 0; i < active_.size();) {
      if (active_[i]->kind == RequestKind::drain) {
        complete(*active_[i], {});
      } else {
        ++i;
      }
    }
  }
  // on_done may post again, but never steps: the list cannot grow under us.
  for (Request* request : completed_) {
    request->on_done(*request);
  }
  completed_.clear();
}

// Requests that wait for transfers go on by their ends.
std::int64_t Desk::next() const {
  return !arming_.empty() || parking_waits() || look_again_ ? now_ : next_deadline_;
}

bool Desk::waits_for_room() const {
  return !room_queue_.empty() || waiters_.any_for_pins();
}

void Desk::end_before_fork() {
  fail_each([](const Request& request) -> std::optional<Status> {
    // If a thread of the child touches that page, it will ask again.
    return request.kind == RequestKind::acquire && request.views == nullptr
               ? Status()
               : fail(Code::shut_down, "fork: asked before it, and answered in the parent only");
  });
}

void Desk::abandon() {
  for (Request* request : active_) {
    if (request->kind == RequestKind::free) {
      request->on_done(*request);
    }
  }
  active_.clear();
}

std::string Desk::check() const {
  std::size_t in_room = 0;
  std::unordered_map<const BufferRecord*, std::uint32_t> awaited;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    const Request& request = *active_[i];
    if (request.at != i || request.state == Request::State::done) {
      return fmt::format("request {} of the active ones says that it is {}, in state {}", i,
                         request.at, static_cast<int>(request.state));
    }
    for (const Span& span : request.spans) {
      ++awaited[span.record];
    }
    if (request.deadline_ns < next_deadline_) {
      return fmt::format("a request ends at {}, and the next look is at {}", request.deadline_ns,
                         next_deadline_);
    }
    if (request.state == Request::State::room) {
      ++in_room;
      if (std::find(room_queue_.begin(), room_queue_.end(), &request) == room_queue_.end()) {
        return "a request waits for room, and is not in the queue for it";
      }
    }
  }
  if (in_room != room_queue_.size()) {
    return fmt::format("{} requests are in the queue for room, and {} wait", room_queue_.size(),
                       in_room);
  }
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const auto found = awaited.find(&record);
    if (record.active_spans != (found == awaited.end() ? 0 : found->second)) {
      return fmt::format("buffer record {} counts {} spans of requests, and there are {}", index,
                         record.active_spans, found == awaited.end() ? 0 : found->second);
    }
  }
  return waiters_.check(active_);
}

std::string Desk::describe_queues() const {
  return fmt::format("{} requests, {} transfers, {} for room, {} for pins, {} prefetches queued\n",
                     active_.size(), engine_.live(), room_queue_.size(), waiters_.for_pins(),
                     waiters_.prefetches());
}

std::string Desk::describe_requests() const {
  std::string text;
  for (const Request* request : active_) {
    text += fmt::format("  request want {} state {} armed {} of {} pending {}{}\n",
                        static_cast<int>(request->kind), static_cast<int>(request->state),
                        request->armed, request->needs.size(), request->pending,
                        request == parking_ ? " parking" : "");
    for (const Need& need : request->needs) {
      const ExtentBits bits = directory_.word(need.space, need.ref).load();
      const Extent& extent = directory_.at(need.ref);
      text += fmt::format(
          "    extent {} space {} {}{}{}{} frame {} | {} readers {} writers {} holds {} transfer "
          "{}\n",
          need.ref, need.space, need.writes ? "w" : "r", need.discard ? "d" : "",
          need.waiting ? " waiting" : "", need.held ? " held" : "", need.frame.valid(),
          phase_name(bits.phase()), bits.readers(), bits.writers(), extent.holds, extent.transfer);
    }
  }
  return text;
}

}  // namespace tiermem

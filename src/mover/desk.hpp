// The desk: requests, from their admission to their answer. It admits a request or refuses it, lets
// it wait for room, looks at each of its needs, lets the needs wait, and answers the request when
// all are met or its time is over. It starts transfers and takes room for needs. Neither the engine
// nor room ever calls it: it looks at the ends of transfers as values, at one place of the step.
//
//   posted ─▶ room ─▶ loading ─▶ (giving ─▶) done      acquire waits in `room`; release_memory in
//   `giving`
//
// The stepping thread only, except note_cancel(); never waits.
//
//   active()[i]->at == i
//   a request in state `room` is in the queue for room, and no other is
//   next deadline <= the deadline of each active request
//   record.active_spans == the number of spans of active requests in that buffer
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/arena.hpp"
#include "mover/gather_needs.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/kept_memory.hpp"
#include "mover/memories.hpp"
#include "mover/needs.hpp"
#include "mover/never.hpp"
#include "mover/queries.hpp"
#include "mover/read_ahead.hpp"
#include "mover/refusals.hpp"
#include "mover/request.hpp"
#include "mover/room.hpp"
#include "mover/transfer_engine.hpp"
#include "mover/waiters.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Desk {
 public:
  Desk(Residency& residency, Memories& memories, Journal& journal, ReadAhead& read_ahead,
       TransferEngine& engine, const Needs& needs, const GatherNeeds& gather_needs, Room& room,
       const Refusals& refusals, Queries& queries, Workers& workers, unsigned prefetch_limit);

  /// [any] Some request's `cancel` was set: released here, acquired by check_deadlines.
  void note_cancel() { cancels_.store(true, std::memory_order_release); }
  /// False: allocation of records failed. New requests are refused, except frees and touches.
  void note_memory(bool is_there) { refuses_ = !is_there; }
  /// Pressed while requests wait for room in vain, and while a budget changes. May be null.
  void attach(KeptMemory* kept) { kept_ = kept; }
  /// While it rests, needs start nothing: they wait.
  void rest(bool on) { resting_ = on; }
  bool rests() const { return resting_; }

  // ---- The step, in the order of its calls

  void begin_step(std::int64_t now);
  /// Lets the waiters for these ends look again. Returns whether there were any.
  bool serve_ended();
  /// The first look at a request.
  void admit(Request& request);
  void check_deadlines();
  /// Copies on lost memories are given up, and requests for them refused.
  void serve_losses();
  void retry_pin_waiters();
  void serve_arming();
  void serve_budget();
  void serve_room();
  void serve_prefetch();
  void serve_giving_back();
  /// Gives up what a request has staged, before a rest.
  void unpark_all();
  /// Returns whether requests have ended in this step, with room that others may wait for.
  bool ended_with_room() const { return !completed_.empty() && waits_for_room(); }
  /// Answers the requests that are done.
  void deliver();
  /// Returns when the desk must be called without an event: now, a time, or kNever.
  std::int64_t next() const;
  /// Returns whether a request waits that only a step looks at.
  bool waits_for_step() const {
    return waits_for_room() || waiters_.prefetches() != 0 || budget_request_ != nullptr ||
           !giving_back_.empty() || next() <= now_;
  }

  // ---- Questions

  const Vector<Request*>& active() const { return active_; }
  /// Requests wait for room, or for pins.
  bool waits_for_room() const;
  /// The request that collects room, or null.
  const Request* head() const { return room_queue_.empty() ? nullptr : room_queue_.front(); }
  /// A request that has its other extents searches for a victim.
  bool seeks() const { return seeks_; }

  /// After a fork, in the child: ends the requests of threads that do not exist here. Frees go on.
  void end_before_fork();
  /// After the last step: answers the frees of buffers with views that were never released. All
  /// other requests ended with the drain.
  void abandon();
  /// Checks the invariants. Empty, or the breach.
  std::string check() const;
  std::string describe_queues() const;
  std::string describe_requests() const;

 private:
  // admit.cpp: the first look at a request.
  bool refuse_stale(Request& request);
  void admit_budget(Request& request);
  void admit_drain(Request& request);
  void admit_needs(Request& request);
  void admit_acquire(Request& request);
  bool find_records(Request& request);
  void enlist(Request& request);
  void end_requests_for(std::uint32_t index);
  static bool writes_in_two_spaces(const Request& request);
  bool refuses(const Request& request) const;
  void refuse(Request& request);
  const MemoryLedger* wants_lost(const Request& request) const;
  MemoryLedger& memory_at(Place place);

  // arm.cpp: what each need lacks is started.
  enum class Arm : std::uint8_t { ready, wait_transfer, wait_pins, queued };
  void activate(Request& request);
  void arm_more(Request& request);
  void arm(Request& request, std::uint32_t index);
  Arm arm_acquire(Request& request, Need& need);
  Arm arm_leave(Request& request, Need& need);
  Arm arm_gather(Request& request, const Need& need);
  Arm empty_pages(Request& request, Need& need);
  void note_touch(const Request& touch, ExtentRef ref);
  bool touches_end(ExtentRef ref) const;
  void keep_refused(ExtentRef ref);

  // collect.cpp: room for requests.
  bool collect(Request& request);
  bool take_back_for(Need& need);
  bool press_kept(bool on);

  // requests.cpp: holds, stages of discards, ends.
  void maybe_finish(Request& request);
  void finish_acquire(Request& request);
  bool fill_views(Request& request);
  bool pin_for(Request& request, const Span& span);
  void finish_free(Request& request);
  void park_discards(Request& request);
  void unpark(Request& request);
  void await_reads(Request& request, Status status);
  void leave_parking(Request& request);
  bool parking_waits() const { return parking_ == nullptr && !parking_queue_.empty(); }
  bool arm_next_to_park();
  void wake_waiters(const Ended& ended);
  void hold(Need& need);
  void unhold(Need& need);
  void let_go(Request& request);
  void fail_request(Request& request, Status status);
  /// Each active request that `why` has a Status for.
  template <typename Why>
  void fail_each(Why&& why);
  void complete(Request& request, Status status);

  // release_memory.cpp: memory goes back to the drivers of devices.
  Arm arm_release_memory(Request& request, Need& need);
  void note_left(Request& request, const Need& need);
  void begin_giving_back(Request& request);
  void give_back_for(Request& request);

  // loss.cpp: devices that are gone.
  void begin_loss(MemoryLedger& memory);
  bool has_frame_of(const MemoryLedger& memory, ExtentRef ref) const;
  bool let_go_of_lost(ExtentRef ref, MemoryLedger& memory);

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  ReadAhead& read_ahead_;
  TransferEngine& engine_;
  const Needs& needs_;
  const GatherNeeds& gather_needs_;
  Room& room_;
  const Refusals& refusals_;
  Queries& queries_;
  Workers& workers_;
  const unsigned prefetch_limit_;

  std::atomic<bool> cancels_{false};  // Any thread.

  std::int64_t now_ = 0;
  KeptMemory* kept_ = nullptr;
  bool pressed_ = false;  // kept_ is.
  bool resting_ = false;
  bool refuses_ = false;     // No memory for more requests than those in progress.
  bool look_again_ = false;  // A request waits for a change without an event: the next step looks.
  bool seeks_ = false;
  std::uint64_t work_ = 0;  // Needs armed in this step.
  std::int64_t next_deadline_ = kNever;
  Waiters waiters_;
  Vector<Request*> active_;     // Admitted, not done.
  Deque<Request*> room_queue_;  // Oldest first; the head collects frames.
  Vector<Request*> arming_;     // Large requests, looked at in pieces.
  Request* parking_ = nullptr;  // Stages its discards.
  Deque<Request*> parking_queue_;
  Request* budget_request_ = nullptr;
  Vector<Request*> giving_back_;  // Retreats that wait for the trims of their devices.
  Vector<Request*> completed_;
};

// Frees are never cancelled. The end of one request may end others, and the last of active_ takes
// the place of each that ends, which the loop may have passed. So the loop runs until none has
// ended.
template <typename Why>
void Desk::fail_each(Why&& why) {
  for (bool ended = true; ended;) {
    ended = false;
    for (std::size_t i = 0; i < active_.size();) {
      Request& request = *active_[i];
      std::optional<Status> status = request.kind != RequestKind::free && !request.ending
                                         ? why(request)
                                         : std::optional<Status>();
      if (status.has_value()) {
        fail_request(request, std::move(*status));
        ended = true;
      } else {
        ++i;
      }
    }
  }
}

}  // namespace tiermem

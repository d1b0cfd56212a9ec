// The mover alone decides where extents live. It is a function, step(now), of the events since the
// last call. It owns no thread, reads no clock, and never waits. It makes system calls only through
// the tiers and workers that it was given. The runtime calls it from one thread, the simulator from
// a loop.
//
//   posts (any thread) ─┐
//   completions of I/O ─┼─▶ step: arm needs → reserve room → start transfers → publish → complete
//   finished jobs ──────┘
//
// Ends. A transfer that ends wakes no request: it appends an `Ended`. The step takes these at one
// place, after the completions, and lets the waiters go on there.
//
// Progress. Room is reserved whole, for one request at a time, the oldest first: so two requests
// never have half of their room each. A granted request can lose a copy to the write of another
// request. It then needs a frame once more, and comes before the queue. If there is no frame, it
// gets what the first request of the queue has collected. The extents of a granted request are held
// (not victims) until it is complete. Extents that a request discards are prepared last, by one
// request at a time, and published in the step in which they are pinned: a request that fails never
// leaves bytes that no program wrote.
//
// Parts. Directory, Memory, TransferEngine, ReadAhead and Journal have data of their own, and never
// call the mover: they return values, and the mover acts on them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/arena.hpp"
#include "mover/ended.hpp"
#include "mover/gather_needs.hpp"
#include "mover/journal.hpp"
#include "mover/memory.hpp"
#include "mover/mover_options.hpp"
#include "mover/needs.hpp"
#include "mover/never.hpp"
#include "mover/read_ahead.hpp"
#include "mover/request.hpp"
#include "mover/room.hpp"
#include "mover/stock.hpp"
#include "mover/transfer_engine.hpp"
#include "observe/receipts.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/tier.hpp"

namespace tiermem {

class Mover {
 public:
  static constexpr std::int64_t kNever = tiermem::kNever;

  /// `tiers[0]` is the host's memory. `block` and `files` may be null.
  Mover(Residency& residency, std::span<AddressableTier* const> tiers, SlotTier* block,
        SlotTier* files, Hands& hands, const MoverOptions& options);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// [any] Hands a request over. Returns true if the mover must be woken for it.
  bool post(Request* request);
  /// [any] Some request's `cancel` was set: released here, acquired by check_deadlines.
  void note_cancel() { cancels_.store(true, std::memory_order_release); }

  /// The program's tick ordinal: next uses before it are over.
  void note_ordinal(std::uint64_t ordinal) {
    for (Memory& memory : memories_) {
      memory.recency.tick(ordinal);
    }
  }

  /// The last step took `ns`. The mover reads no clock: its caller does.
  void note_step(std::int64_t ns) { journal_.note_step(ns); }

  /// False: allocation of records failed, and the reserve is kept for work in progress. New
  /// requests are refused, except frees and touches.
  void note_memory(bool is_there) { refuses_ = !is_there; }

  /// Takes the events since the last step, decides, and starts what can start. Returns the time of
  /// the next call in nanoseconds of the clock of `now`; kNever: after the next event.
  std::int64_t step(std::int64_t now);

  /// Before a fork: takes no posts and starts no transfer any more, so that those in progress end.
  /// With one space they wait only for workers and devices. Requests keep waiting.
  void rest(bool on) { resting_ = on; }
  /// No worker and no device has anything to do. While the mover rests, nothing begins.
  bool rested() const { return resting_ && engine_.rests(); }
  // After a fork, while it still rests, and before the next step.
  /// False once the numbers of forks are used up: the next child gets no context.
  bool can_follow_fork() const { return !engine_.block_slots().shared().is_full(); }
  /// In the parent: a child reads the slots there are. Its number, for child_ended().
  std::uint32_t parent_of_child() { return engine_.block_slots().parent_of_child(); }
  /// In the child: the slots there are belong to the parent. Requests of threads that do not exist
  /// here end; frees go on.
  void child_of_parent();
  /// In the parent, between two steps.
  void child_ended(std::uint32_t child);
  /// Before the first step: the counters that may wrap begin so far below their end.
  void test_begin_near_wrap(std::uint32_t left);
  /// A device space's bytes can come from a slot, and go there.
  bool has_staging() const { return engine_.bounce().has_staging(); }
  /// Slots wait for the end of a child.
  bool waits_for_child() const { return !engine_.block_slots().shared().parked().empty(); }

  bool idle() const {
    return active_.empty() && engine_.live() == 0 && engine_.housekeeping() == 0 &&
           !stock_.any_given_up();
  }
  /// [stepping thread] Changes whenever a transfer ends or a request completes.
  std::uint64_t activity() const { return journal_.activity(); }
  /// [stepping thread]
  void fill_stats(Stats& stats);
  /// [stepping thread] Totals, and the newest `most` receipts.
  void copy_receipts(ReceiptsCopy& to, std::size_t most) const { journal_.copy_receipts(to, most); }

  /// [any] The smallest read of this buffer's slots and files: a block that has a checksum.
  std::uint32_t read_unit(const BufferRecord& record) const { return engine_.read_unit(record); }

  /// [stepping thread] Bytes of bounce areas, which are charged to the host's budget.
  std::uint64_t bounce_bytes() const { return engine_.bounce().area_bytes_in_all(); }

  /// Derives the books again from scratch. Empty, or the breach.
  std::string check_invariants();
  std::string describe() const;
  /// After the last step: gives everything back without I/O. The tiers go next.
  void abandon();

 private:
  // mover.cpp: the step and its inputs.
  void take_posts();
  void admit_read_ahead();
  void decide();
  bool take_completions();
  void check_deadlines();
  std::int64_t next_of_requests() const;
  void deliver();
  void complete(Request& request, Status status);

  // admit.cpp: the first look at a request.
  void admit(Request& request);
  void admit_budget(Request& request);
  void admit_drain(Request& request);
  void admit_needs(Request& request);
  void admit_acquire(Request& request);
  bool refuse_stale(Request& request);
  bool find_records(Request& request);
  void enlist(Request& request);
  void end_requests_for(std::uint32_t index);
  bool writes_in_two_spaces(const Request& request) const;

  // refusal.cpp: when a request is refused, and what the error says.
  bool refuses(const Request& request) const;
  void refuse(Request& request);
  Status late(Request& request);
  Status no_room(const Request* request, unsigned space, std::uint64_t needed);
  bool nothing_will_change(const Request& asking);
  bool tries_again(const Memory& memory) const;
  bool any_pin() const;
  std::uint64_t pinned_bytes(unsigned space) const;
  std::array<char, 160> why_no_memory(std::uint64_t bytes, std::span<char, 64> setting) const;

  // invariants.cpp
  std::string check_requests();
  std::string check_counts();
  std::string unused_extent(ExtentRef ref);

  // needs.cpp: what each extent of a request lacks.
  enum class Arm : std::uint8_t { ready, wait_transfer, wait_pins, queued };
  void activate(Request& request);
  void arm_more(Request& request);
  void arm(Request& request, std::uint32_t index);
  Arm arm_acquire(Request& request, Need& need);
  void note_touch(const Request& touch, ExtentRef ref);
  Arm arm_leave(Request& request, Need& need);
  void keep_refused(ExtentRef ref);
  bool touches_end(ExtentRef ref) const;

  // requests.cpp: waiters, holds, ends.
  void maybe_finish(Request& request);
  void finish_acquire(Request& request);
  void finish_free(Request& request);
  void park_discards(Request& request);
  void unpark(Request& request);
  void leave_parking(Request& request);
  bool parking_waits() const { return parking_ == nullptr && !parking_queue_.empty(); }
  bool arm_next_to_park();
  void wait_for(Request& request, std::uint32_t index, ExtentRef ref);
  void wait_for_pins(Request& request, std::uint32_t index);
  bool stop_waiting(Request& request, std::uint32_t index);
  void forget_waits(Request& request);
  using Woken = std::pair<Request*, std::uint32_t>;
  Vector<Woken> take_waiters(const Ended& ended);
  void wake_waiters(const Ended& ended);
  bool serve_ended();
  void hold(Need& need);
  void unhold(Need& need);
  void let_go(Request& request);
  void fail_request(Request& request, Status status);
  /// Each active request that `why` has a Status for.
  template <typename Why>
  void fail_each(Why&& why);
  void retry_pin_waiters();
  void fill_info(Request& request);
  void advise(Request& request);

  // collect.cpp
  void serve_room();
  bool collect(Request& request);
  bool take_back_for(Need& need);
  void serve_prefetch();
  void serve_budget();

  // whereabouts.cpp
  void describe_location(Request& request);

  // pins.cpp
  bool lets_in(const Request& request, const Need& need);
  bool fill_views(Request& request);
  bool pin_for(Request& request, const Span& span);
  bool pin_one_for(Request& request, const Span& span);

  Arm arm_gather(Request& request, const Need& need);
  Arm empty_pages(Request& request, Need& need);

  // hand_over.cpp
  bool at_rest_below(ExtentRef ref) const;
  void hand_over(Request& request);
  bool hand_over(ExtentRef from, ExtentRef to);

  // retreat.cpp: what leaves a device.
  Arm arm_retreat(Request& request, Need& need);
  void note_left(Request& request, const Need& need);
  void begin_giving_back(Request& request);
  void give_back_for(Request& request);
  void serve_giving_back();

  // loss.cpp: devices that are gone.
  void serve_losses();
  void begin_loss(Memory& memory);
  bool let_go_of_lost(ExtentRef ref, Memory& memory);
  Status no_bytes(ExtentRef ref) const;
  const Memory* wants_lost(const Request& request) const;
  static Status refuse_lost(const Memory& memory);

  unsigned space_of(Place place) const;

  struct Waiter {
    Request* request = nullptr;
    std::uint32_t need = 0;
    std::uint32_t next = 0;   // + 1
    std::uint64_t since = 0;  // The number of ends when it began to wait.
  };

  // Constant after construction.
  Residency& residency_;
  const Directory directory_;
  Hands& hands_;
  const MoverOptions options_;
  SlotTier* block_;
  SlotTier* files_;

  // Any thread: the queue of posts, newest first.
  std::atomic<Request*> posts_{nullptr};
  std::atomic<bool> cancels_{false};

  // All others are the stepping thread's. The step and its parts:
  std::int64_t now_ = 0;
  Deque<Memory> memories_;  // By space. Stable addresses: workers hold `trim`.
  Journal journal_;
  Stock stock_;
  TransferEngine engine_;  // Its ends are taken between two steps.
  GatherNeeds gather_needs_;
  Needs needs_;
  Room room_;
  ReadAhead read_ahead_;
  bool resting_ = false;
  bool refuses_ = false;     // No memory for more requests than those in progress.
  bool seeks_ = false;       // A request that has its other extents searches for a victim.
  bool look_again_ = false;  // A request waits for a change without an event: the next step looks.
  std::uint64_t work_ = 0;   // Needs armed in this step.

  // Requests.
  std::int64_t next_deadline_ = kNever;
  Vector<Waiter> waiters_;
  Vector<std::uint32_t> free_waiters_;
  Vector<Request*> active_;     // Admitted, not done.
  Deque<Request*> room_queue_;  // Oldest first; the head collects frames.
  Vector<Request*> arming_;     // Large requests, looked at in pieces.
  Vector<Woken> pin_waiters_;
  Deque<Woken> prefetch_queue_;
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
void Mover::fail_each(Why&& why) {
  for (bool ended = true; ended;) {
    ended = false;
    for (std::size_t i = 0; i < active_.size();) {
      Request& request = *active_[i];
      std::optional<Status> status =
          request.want != Want::free ? why(request) : std::optional<Status>();
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

// The mover alone decides where extents live. It is a function, step(now), of the events since the
// last call. It owns no thread, reads no clock, and never waits. It makes system calls only through
// the tiers and workers that it was given. The runtime calls it from one thread at a time, the
// simulator from a loop.
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
// Parts. Desk has the requests, Room the frames for them, TransferEngine the transfers. Each has
// its own data and calls only parts below it (docs/architecture.md). Ends come up as values.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/arena.hpp"
#include "mover/desk.hpp"
#include "mover/gather_needs.hpp"
#include "mover/journal.hpp"
#include "mover/memory_ledger.hpp"
#include "mover/mover_options.hpp"
#include "mover/needs.hpp"
#include "mover/never.hpp"
#include "mover/queries.hpp"
#include "mover/read_ahead.hpp"
#include "mover/refusals.hpp"
#include "mover/request.hpp"
#include "mover/room.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stock.hpp"
#include "mover/transfer_engine.hpp"
#include "observe/receipts.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/address_space.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class Mover {
 public:
  static constexpr std::int64_t kNever = tiermem::kNever;

  /// `spaces[0]` is the host's. `slots`: the slot tiers that take writes, in the order of demotion.
  /// `files` may be null.
  Mover(Residency& residency, std::span<AddressSpace* const> spaces,
        std::span<SlotTier* const> slots, SlotTier* files, Workers& workers,
        const MoverOptions& options);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  /// Before the first step: memory that the mover may press for.
  void attach(KeptMemory* kept) { desk_.attach(kept); }

  /// [any] Hands a request over. Returns true if the mover must be woken for it.
  bool post(Request* request);
  /// [any] Some request's `cancel` was set.
  void note_cancel() { desk_.note_cancel(); }

  /// The program's tick ordinal: next uses before it are over.
  void note_ordinal(std::uint64_t ordinal) {
    for (MemoryLedger& memory : memories_) {
      memory.recency.tick(ordinal);
    }
  }

  /// The last step took `ns`. The mover reads no clock: its caller does.
  void note_step(std::int64_t ns) { journal_.note_step(ns); }

  /// False: allocation of records failed, and the reserve is kept for work in progress. New
  /// requests are refused, except frees and touches.
  void note_memory(bool is_there) { desk_.note_memory(is_there); }

  /// Takes the events since the last step, decides, and starts what can start. Returns the time of
  /// the next call in nanoseconds of the clock of `now`; kNever: after the next event.
  std::int64_t step(std::int64_t now);

  // A touching thread brings its page itself, if the page is one of a partial extent. Both calls
  // come between two steps. The thread that makes them steps the mover for this time, and no other
  // may do it.
  /// Begins the request of a touch, as post() and a step would. Returns the job that the caller
  /// runs next, with begin_job() and run_job(), while others may step. Null: the request ends by
  /// itself, or has ended.
  Job* begin_touch(Request& request, std::int64_t now);
  /// The job has ended.
  void end_touch(Job& job, std::int64_t now);
  /// Returns whether the mover must step after these calls.
  bool needs_step() const;

  /// Before a fork: takes no posts and starts no transfer any more, so that those in progress end.
  /// With one space they wait only for workers and devices. Requests keep waiting.
  void rest(bool on) { desk_.rest(on); }
  /// No worker and no device has anything to do. While the mover rests, nothing begins.
  bool rested() const { return desk_.rests() && engine_.rests(); }
  // After a fork, while it still rests, and before the next step.
  /// False once the numbers of forks are used up: the next child gets no context.
  bool can_follow_fork() const { return slots_.can_follow_fork(); }
  /// In the parent: a child reads the slots there are. Its number, for child_ended().
  std::uint32_t parent_of_child() { return slots_.parent_of_child(); }
  /// In the child: the slots there are belong to the parent. Requests of threads that do not exist
  /// here end; frees go on. Buffers that are not mapped stay with the parent: their handles are
  /// stale, their pins and views end, their frames are free, and the next step frees the rest.
  void child_of_parent();
  /// In the parent, between two steps.
  void child_ended(std::uint32_t child);
  /// Before the first step: the counters that may wrap begin so far below their end.
  void test_begin_near_wrap(std::uint32_t left);
  /// A device space's bytes can come from a slot, and go there.
  bool has_staging() const { return engine_.bounce().has_staging(); }
  /// Slots wait for the end of a child.
  bool waits_for_child() const { return slots_.waits_for_child(); }

  bool idle() const {
    return desk_.active().empty() && engine_.live() == 0 && engine_.housekeeping() == 0 &&
           !stock_.any_given_up();
  }
  /// [stepping thread] Changes whenever a transfer ends or a request completes.
  std::uint64_t activity() const { return journal_.activity(); }
  /// [stepping thread]
  void fill_stats(Stats& stats) const { queries_.fill_stats(stats); }
  /// [stepping thread] Totals, and the newest `most` receipts.
  void copy_receipts(ReceiptsCopy& to, std::size_t most) const { journal_.copy_receipts(to, most); }

  /// [any] The smallest read of this buffer's slots and files: a block that has a checksum.
  std::uint32_t read_unit(const BufferRecord& record) const {
    return engine_.parts().read_unit(record);
  }

  /// [stepping thread] Bytes of bounce areas, which are charged to the host's budget.
  std::uint64_t bounce_bytes() const { return engine_.bounce().area_bytes_in_all(); }

  /// Derives the accounting again from scratch. Empty, or the breach.
  std::string check_invariants();
  std::string describe() const;
  /// After the last step: gives everything back without I/O. The tiers go next.
  void abandon();

 private:
  void begin_step(std::int64_t now);
  void take_posts();
  void admit_freed();
  void admit_read_ahead();
  bool take_completions();
  void decide();
  bool waits_for_pins() const;
  void leave_unmapped();
  void lose_frames(std::uint32_t index);

  // invariants.cpp
  std::string check_counts();
  std::string unused_extent(ExtentRef ref);
  std::uint64_t bytes_in_order(unsigned space, ExtentRef ref) const;

  // Constant after construction.
  Residency& residency_;
  const Directory directory_;

  // Any thread: the queue of posts, newest first.
  std::atomic<Request*> posts_{nullptr};

  // All others are the stepping thread's. Each part calls only those above it.
  std::int64_t now_ = 0;
  Memories memories_;
  SlotTiers slots_;
  Journal journal_;
  Stock stock_;
  TransferEngine engine_;  // Its ends are taken between two steps.
  GatherNeeds gather_needs_;
  Needs needs_;
  Room room_;
  Refusals refusals_;
  Queries queries_;
  ReadAhead read_ahead_;
  Desk desk_;
};

}  // namespace tiermem

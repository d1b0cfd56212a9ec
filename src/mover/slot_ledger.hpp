// The ledger of one slot tier: what the mover knows of it besides the queue in front of it
// (mover/channel.hpp). How the tier grows, what may be written in a day, which devices fail, when
// writes are paused, and which slots children of fork read. The mover tells what has happened, and
// acts on the answers: the ledger knows no transfer but by number, and starts none.
//
// The stepping thread only; never waits. Workers hold the job that grows the tier.
//
//   a transfer waits for growth  =>  the job that grows the tier is in progress
//   0 <= wear left <= max(the endurance of a day, the largest write), plus what was returned
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/arena.hpp"
#include "mover/backoff.hpp"
#include "mover/job.hpp"
#include "mover/never.hpp"
#include "mover/shared_slots.hpp"
#include "policy/slot_level.hpp"
#include "residency/extents.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class SlotLedger {
 public:
  struct Options {
    std::uint64_t endurance_bytes_per_day = 0;  ///< 0: no limit.
    std::int64_t degraded_ns = 0;  ///< Initial backoff for a degraded device; up to 32 times this.
  };

  /// `tier` may be null if no transfer ever writes to it or reads from it.
  SlotLedger(SlotTier* tier, Workers& workers, const Options& options);
  SlotTier* tier() const { return tier_; }

  // ---- Slots

  /// Allocates a slot. Errors: see SlotTier::allocate().
  Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid);
  /// Returns the most bytes that slots can have: the budget, or what they had when an allocation
  /// was refused. The devices may have less room than the budget.
  std::uint64_t room() const;
  /// Returns whether the tier has no slot of `bytes` on a device that is not in `avoid`.
  bool is_full(std::uint64_t bytes, std::uint64_t avoid);
  /// Frees a slot that no extent has, at the end of the last read in progress that was announced.
  void free(SlotId slot);
  /// An extent gives up its slot: it is free once no child of fork reads it.
  void give_up(SlotId slot, std::uint32_t stamp);
  /// A transfer reads the slot, and does not keep its extent from giving it up.
  void begin_read(SlotId slot);
  /// Returns whether this has freed the slot.
  bool end_read(SlotId slot);
  /// Calls `visit(slot)` for each slot that was freed and is still read.
  template <typename Visit>
  void each_freed_under_read(Visit&& visit) const {
    for (const Read& read : reads_) {
      if (read.freed) {
        visit(read.slot);
      }
    }
  }
  void set_budget(std::uint64_t bytes);

  /// Queues the transfer, and lets the tier grow for a slot of `bytes`.
  void grow(std::uint32_t transfer, std::uint64_t bytes);
  /// Returns whether the job was the one that grows the tier. Then take_grown() has the transfers.
  bool job_done(const Job& job);
  /// Returns the transfers that waited for growth, oldest first, and forgets them.
  Deque<std::uint32_t> take_grown() { return std::exchange(growing_queue_, {}); }
  /// Jobs of workers in progress.
  unsigned jobs() const { return growing_ ? 1 : 0; }

  // ---- Slots that give way: see Copies::next_slot_gives_way().

  bool looks_for_slots(std::int64_t now) const { return now >= none_gives_way_until_; }
  /// Advances to the next of `extents` extents and returns it: its slot may give way.
  ExtentRef next_to_give_way(ExtentRef extents) {
    return gave_way_at_ = gave_way_at_ + 1 < extents ? gave_way_at_ + 1 : 0;
  }
  /// All extents were looked at. A look costs some 10 ns for each of them: at most a tenth of the
  /// time goes into it.
  void none_gives_way(std::int64_t now, ExtentRef extents) {
    none_gives_way_until_ = now + 1'000'000 + 100 * std::int64_t{extents};
  }

  // ---- Snapshots: slots that children of fork read.

  const SharedSlots& shared() const { return shared_; }
  /// The stamp of slots that are allocated now.
  std::uint32_t stamp() const { return shared_.stamp(); }
  bool is_shared(std::uint32_t stamp) const { return shared_.is_shared(stamp); }
  std::uint32_t parent_of_child() { return shared_.parent_of_child(); }
  void child_of_parent() { shared_.child_of_parent(); }
  void child_ended(std::uint32_t child);
  void test_begin_near_wrap(std::uint32_t left) {
    shared_.test_begin_at(SharedSlots::kMostForks - left);
  }

  // ---- Writes

  /// Returns whether a write may begin. If writes are paused because no slot was free, extents with
  /// slots of their own can still be written.
  bool can_write(std::int64_t now, bool has_own_slot) const {
    return tier_ != nullptr && (write_backoff_.over(now) || (no_slot_ && has_own_slot));
  }
  /// Writes wait after a failure.
  bool paused(std::int64_t now) const { return !write_backoff_.over(now); }
  /// Writes are paused because no slot was free.
  bool waits_for_slots(std::int64_t now) const { return no_slot_ && paused(now); }
  std::int64_t paused_until() const { return write_backoff_.until(); }
  /// Writes are paused, and some request may wait for the next try: not if there is no slot to
  /// write to, nor after many failures in a row.
  bool tries_again(std::int64_t now) const {
    return !no_slot_ && paused(now) && !write_backoff_.gave_up();
  }
  /// A write has failed. `no_slot`: because no slot was free.
  void pause(std::int64_t now, bool no_slot);
  /// Slots have become free. Returns whether writes were refused for want of slots; they are no
  /// longer paused.
  bool slots_came();

  /// Reserves the bytes of a write of the devices' endurance. Returns false while none is left:
  /// then writes are paused. A whole day's budget may be spent at once, and comes back evenly.
  bool may_wear(std::uint64_t bytes, std::int64_t now);
  /// Returns reserved bytes that were not written; less than 0 if more were.
  void return_wear(std::int64_t bytes) { wear_left_ += static_cast<double>(bytes); }

  /// A device refused a write. After some failures in a row it is degraded.
  void write_failed(std::uint16_t device, const char* why, std::int64_t now);
  void write_worked(SlotId slot);
  /// Lets degraded devices be tried again after a backoff. The next write decides, and one failure
  /// is enough.
  void retry_degraded(std::int64_t now);

  /// The error of the last failed write; ok: none. Refusals report it as the reason.
  const ErrorInfo& last_error() const { return last_error_; }
  void note_error(const ErrorInfo& error) { last_error_ = error; }
  /// A write has worked: forgets the error, unless writes are still paused.
  void forget_error(std::int64_t now);

  // ---- The path between slots and devices past the host

  bool tries_direct(std::int64_t now) const { return direct_backoff_.over(now); }
  void direct_worked(SlotId slot, std::uint64_t bytes, bool wrote);
  void direct_failed(std::int64_t now) { direct_backoff_.failed(now); }

  /// Returns when paused writes are tried again, else kNever.
  std::int64_t next(std::int64_t now) const { return paused(now) ? paused_until() : kNever; }
  /// Checks the invariants. Empty, or the breach.
  std::string check() const;

 private:
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  struct Read {
    SlotId slot{};
    bool freed = false;  // At most one read of a slot has it.
  };
  Read* read_of(SlotId slot);
  std::uint32_t& failures_of(std::uint16_t device) {
    return device_failures_[device % device_failures_.size()];
  }

  SlotTier* const tier_;
  Workers& workers_;
  const Options options_;
  Deque<std::uint32_t> growing_queue_;  // Transfers that wait for the tier to grow.
  bool growing_ = false;
  Job grow_;
  std::array<Read, SlotLevel::kMostDestages> reads_{};
  Vector<std::uint32_t> device_failures_;  // By device: consecutive failed writes.
  Backoff degraded_backoff_;               // Until the degraded devices are tried again.
  Backoff write_backoff_;
  Backoff direct_backoff_{1'000'000'000, 960'000'000'000};  // After the direct path failed.
  bool no_slot_ = false;                                    // Writes wait because no slot is free.
  std::uint64_t full_at_ = kNoLimit;  // The bytes of all slots when the last one was refused.
  // The extent of the last slot that gave way, and the time until which no search begins.
  ExtentRef gave_way_at_ = 0;
  std::int64_t none_gives_way_until_ = 0;
  SharedSlots shared_;
  double wear_left_ = 0;  // Bytes left of today's endurance.
  std::int64_t wear_counted_at_ = 0;
  ErrorInfo last_error_{};
};

}  // namespace tiermem

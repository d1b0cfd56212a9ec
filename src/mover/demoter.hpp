// Demotes: an extent's bytes go to a slot. The frame stays, or leaves after that. Stages: see
// mover/stages.hpp. The stepping thread only; never waits.
#pragma once

#include <cstdint>

#include "base/arena.hpp"
#include "mover/carrier.hpp"
#include "mover/copies.hpp"
#include "mover/memories.hpp"
#include "mover/parts.hpp"
#include "mover/request.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stuck.hpp"
#include "mover/transfer.hpp"

namespace tiermem {

class Demoter {
 public:
  Demoter(Residency& residency, Memories& memories, Journal& journal, Carrier& carrier,
          Copies& copies, Parts& parts, Stuck& stuck, Bounce& bounce, SlotTiers& slots,
          const MoverOptions& options);

  /// Returns false if the extent cannot be written down now. `some`: pages of a partial extent that
  /// leave, if they can without the others. 0: all leave.
  bool start(ExtentRef ref, unsigned space, bool evict_after, Priority priority, PageMask some);
  /// The need wants an extent that is leaving its window: it comes back.
  void recall(const Need& need);

  // ---- Events of a demote

  void job_done(Demote& transfer);
  void io_done(Demote& transfer, const SlotCompletion& completion);
  void went_direct(Demote& transfer);
  void send(Demote& transfer, unsigned depth);
  /// A run of a write to a slot that lacks pages has ended. Returns whether all have; `all` has
  /// their sums then, and the first of several errors.
  bool run_ended(const SlotCompletion& run, SlotCompletion& all);
  /// The transfer has its place in the staging.
  void seal(Demote& transfer);
  /// The transfer has its bounce area.
  void read_missing(DemoteParts& transfer);
  /// The tier has grown.
  void find_slot(Demote& transfer);
  /// The tier could not grow.
  void not_grown(Demote& transfer, Status status);
  void failed(Demote& transfer, Status status);
  /// The frame was to be dropped, and was, unless it has been written or recalled.
  void drop_ended(Demote& transfer, bool dropped);

  /// Returns the charge of a new slot for the transfer.
  std::uint64_t slot_bytes_of(const Demote& transfer) const;

 private:
  // demote.cpp
  SlotTiers::Entry* reserve_write(ExtentRef ref, unsigned tried);
  unsigned not_offered(ExtentRef ref);
  void note_stored(const Demote& transfer);
  bool has_other_tier(const Demote& transfer) const;
  bool to_next_tier(Demote& transfer, const Status& why, bool no_slot);
  SlotId new_slot(Demote& transfer);
  void write_and_hash(Demote& transfer);
  static Status no_sums();
  void copied(Demote& transfer);
  void write_changed(Demote& transfer);
  void write_done(Demote& transfer, const SlotCompletion& completion);
  void written(Demote& transfer);
  void take_sums(Demote& transfer, std::uint64_t bytes);
  void end(Demote& transfer);

  // stored.cpp: slots that have some pages of their extents.
  bool measures(const Demote& transfer) const;
  bool compare_with_file(Demote& transfer);
  void compared_with_file(Demote& transfer);
  void write_elsewhere(Demote& transfer);
  void measure(Demote& transfer);
  void measured(Demote& transfer);
  void send_runs(Demote& transfer, const SlotPages& pages);

  // withdraw.cpp: demotes of mapped extents.
  bool start_withdraw(ExtentRef ref, unsigned space, bool evict_after, Priority priority,
                      PageMask some);
  bool leaves_in_part(ExtentRef ref, const SlotTiers::Entry& to) const;
  void begin_withdraw(Demote& transfer, bool evict_after);
  void keep(Demote& transfer);
  void withdraw(Demote& transfer);
  void withdrawn(Demote& transfer);
  void map_back(Demote& transfer);
  void stay(Demote& transfer, Status why);
  void gone(Demote& transfer);

  // demote_parts.cpp
  void write_changed(DemoteParts& transfer);
  void write_next(DemoteParts& transfer);
  void leave_together(DemoteParts& transfer);
  void make_whole(DemoteParts& transfer);
  void missing_came(DemoteParts& transfer);
  void measured(DemoteParts& transfer);
  void find_slot(DemoteParts& transfer);
  void whole_written(DemoteParts& transfer);
  void not_written(DemoteParts& transfer, Status status);

  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Carrier& carrier_;
  Copies& copies_;
  Parts& parts_;
  Stuck& stuck_;
  Bounce& bounce_;
  SlotTiers& slots_;
  const MoverOptions& options_;
};

}  // namespace tiermem

// The engine of transfers, from their start to their end. A transfer moves one extent
// (mover/transfer.hpp). The mover decides which extents move and with which frames. The engine
// gives each event to the family that the transfer is of: Promoter, Parts, Demoter, Relocator,
// Destager or Gatherer. Evicts are its own. It reports ends as values: take_ended(),
// left_watched(). It calls no part above it. No family calls the engine, or another family to start
// a transfer: what follows on an end is a value, too (Carrier::Next).
//
// The stepping thread only; never waits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/arena.hpp"
#include "mover/bounce.hpp"
#include "mover/carrier.hpp"
#include "mover/copies.hpp"
#include "mover/demoter.hpp"
#include "mover/destager.hpp"
#include "mover/ended.hpp"
#include "mover/gatherer.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/mover_options.hpp"
#include "mover/parts.hpp"
#include "mover/promoter.hpp"
#include "mover/relocator.hpp"
#include "mover/request.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stock.hpp"
#include "mover/stuck.hpp"
#include "mover/transfer.hpp"
#include "policy/placement.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/frame.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class TransferEngine {
 public:
  /// `memories` is filled before the first step.
  TransferEngine(Residency& residency, Memories& memories, Journal& journal, Stock& stock,
                 SlotTiers& slots, Workers& workers, const MoverOptions& options);

  // ---- The step, in the order of its calls

  void begin_step(std::int64_t now);
  /// Takes what workers and slot tiers have completed. Returns whether there was anything.
  bool take_completions();
  /// Transfers that waited for a place of the bounce memory go on. Returns whether any did.
  bool grant_places();
  /// Returns the ends since the last call, oldest first. Valid until the next call.
  std::span<const Ended> take_ended() { return carrier_.take_ended(); }
  const EndedList& ended() const { return carrier_.ended(); }
  void retry_unmaps() { carrier_.retry_unmaps(); }
  /// Populates areas of the bounce memory again, after a backoff.
  void retry_areas() { bounce_.retry_areas(carrier_.now()); }
  /// Extents with pages that could not be read may have been tried by now.
  void note_rereads() { stuck_.note_rereads(carrier_.now()); }
  void serve_recopies() { promoter_.serve_recopies(); }
  void serve_abandoned() { promoter_.serve_abandoned(); }
  void issue_io();
  /// Returns when the engine must be called without an event: now, a time, or kNever.
  std::int64_t next() const;

  // ---- Between two steps: a touching thread brings its page itself

  void offer_to_toucher() { carrier_.offer_to_toucher(); }
  Job* end_offer() { return carrier_.end_offer(); }
  void done_by_toucher(Job& job);
  /// Drops pages that were not written, of as many frames as one call takes. Returns whether there
  /// were any.
  bool run_drops();
  /// Returns whether a step has something to start or to take.
  bool waits_for_step() const;
  /// Returns when an extent that could not leave may be tried again, for requests that wait for
  /// room. kNever if there is none.
  std::int64_t next_for_room() const;

  // ---- What the mover tells

  /// The number of active requests.
  void note_requests(std::size_t active) { carrier_.note_requests(active); }
  /// A request waits for pins of the extent. An extent of these that leaves without a transfer sets
  /// left_watched().
  void watch(ExtentRef ref) { watched_.push_back(ref); }
  void unwatch(ExtentRef ref);
  void unwatch_all() { watched_.clear(); }
  bool left_watched() const { return left_watched_; }

  // ---- Starts. The extent has no transfer, unless the function says otherwise.

  /// Brings the extent into the frame. `discards_for`: the request overwrites all of it. `shows`:
  /// it is wanted in its window on a device.
  void start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                     Request* discards_for, bool shows = false);
  /// Brings the extent, or some of its pages, into the room that the need has.
  void start_promote(Need& need, Priority priority);
  void start_show(const Need& need);
  void start_empty(ExtentRef ref, PageMask pages) { parts_.start_empty(ref, pages); }
  void start_gather(Request& request, std::span<GatherRead> reads) {
    gatherer_.start(request, reads);
  }
  /// Returns false if the extent cannot be written down now.
  bool start_demote(ExtentRef ref, unsigned space, bool evict_after, Priority priority) {
    return demoter_.start(ref, space, evict_after, priority, 0);
  }
  /// Whether all pages of a partial extent leave, or the pages without turns.
  enum class Leaves : std::uint8_t { all, by_level };
  /// Gives up this space's copy, and writes it down first if it is the only one. Returns false if
  /// the extent cannot leave now, or if all of its pages stay for this time.
  bool start_evict(ExtentRef ref, unsigned space, Priority priority, Leaves leaves = Leaves::all);
  /// Moves the extent to the frame, of another memory of the space, because it is used or prefers
  /// that memory. Returns false if it cannot move now: the frame stays the caller's.
  bool start_climb(ExtentRef ref, unsigned space, FrameId to) {
    return relocator_.start(ref, space, to, Priority::background, true);
  }
  /// Returns whether the extent can move to another memory of its space.
  bool can_relocate(ExtentRef ref, unsigned space) const {
    return relocator_.can_start(ref, space);
  }
  /// Returns whether extents can move to this memory of their space now.
  bool takes_extents(const MemoryLedger& memory) const {
    return !memory.lost && memory.entry_backoff.over(carrier_.now());
  }
  /// Returns whether this extent can move to the memory of the host now.
  bool takes_extent(const MemoryLedger& memory, ExtentRef ref) const {
    return takes_extents(memory) && memory.tier->takes(directory_.frame_request(ref, kHost));
  }
  /// Copies the extent, which is in its slot only, to that slot tier. `frame`: see
  /// Destager::start().
  void start_destage(ExtentRef ref, FrameId frame, SlotTiers::Entry& to) {
    destager_.start(ref, frame, to);
  }
  /// Returns whether some extent of this slot tier should be copied to another now.
  bool may_destage(const SlotTiers::Entry& tier) const {
    return destager_.may_start(tier, carrier_.now());
  }
  void no_frame_to_destage() { destager_.no_frame(carrier_.now()); }
  bool others_stay(const Transfer& transfer) const { return carrier_.others_stay(transfer); }
  /// The frame goes with its bytes. The caller knows that they are elsewhere or unwanted. Returns
  /// false if the extent has a transfer or is pinned.
  bool leave(ExtentRef ref, unsigned space, bool even_dirty) {
    return leave(ref, space, even_dirty, 0);
  }

  // ---- Changes of transfers in progress

  /// The extent is wanted: a destage of it is given up.
  void desert_destage(ExtentRef ref) { destager_.desert(ref); }

  /// The need wants an extent that is leaving its window: it comes back.
  void recall(const Need& need) { demoter_.recall(need); }
  /// Returns whether the request's stream may have the extent now and wait for the copy itself.
  bool lets_in(const Request& request, const Need& need) {
    return promoter_.lets_in(request, need);
  }
  /// Pins one extent while its word is still `incoming`. Returns false if that is impossible.
  bool pin_incoming(Request& request, const Span& span) {
    return promoter_.pin_incoming(request, span);
  }

  // Discards that the request has staged. Each does nothing for other extents.
  /// Views find the bytes. To be published by the phase.
  void give_place(const Request& request, ExtentRef ref) { promoter_.give_place(request, ref); }
  void publish_parked(const Request& request, ExtentRef ref);
  /// The request has ended, or must begin anew. A transfer that has not landed is undone then.
  void unpark(const Request& request, ExtentRef ref);

  /// The request ends early: see Gatherer::desert().
  [[nodiscard]] bool desert_gather(const Request& request) { return gatherer_.desert(request); }
  bool reads_for(const Request& request, ExtentRef ref) const {
    return gatherer_.reads_for(request, ref);
  }

  // ---- Copies and slots of extents without transfers

  Copies& copies() { return copies_; }
  const Copies& copies() const { return copies_; }
  /// An extent has changed without a transfer: the step lets its waiters look again.
  void extent_changed(ExtentRef ref, unsigned space) { carrier_.extent_changed(ref, space); }

  // ---- Questions

  std::uint32_t live() const { return carrier_.live(); }
  unsigned prefetches() const { return carrier_.prefetches(); }
  /// Jobs of workers that belong to no transfer.
  unsigned housekeeping() const;
  /// No worker and no device has anything to do.
  bool rests() const {
    return live() == 0 && housekeeping() == 0 && !carrier_.any_own_jobs() && !carrier_.any_drops();
  }
  /// Some transfers wait for pins.
  bool waits_for_pins() const { return promoter_.waits_for_pins(); }
  /// Null if the extent has none.
  const Transfer* transfer_of(ExtentRef ref) const { return carrier_.transfer_of(ref); }
  template <typename Visit>
  void each_transfer(Visit&& visit) const {
    carrier_.each(visit);
  }
  /// Returns the transfer that stages the extent for a discard of the request, or null.
  const Promote* parked_for(const Request& request, ExtentRef ref) const {
    return promoter_.parked_for(request, ref);
  }
  /// Returns whether it has landed.
  bool is_parked(const Request& request, ExtentRef ref) const {
    const Promote* const mine = parked_for(request, ref);
    return mine != nullptr && mine->stage == Stage::parked;
  }
  /// The extent is leaving its window, and will be back.
  bool comes_back(ExtentRef ref) const { return carrier_.comes_back(ref); }
  /// Returns the facts about this space's copy by which its destination is chosen. `bits`: the word
  /// of the copy.
  Placement::Victim as_victim(ExtentRef ref, unsigned space, ExtentBits bits) const;
  /// The last try of the extent to leave failed, and it is not tried again yet.
  bool is_stuck(ExtentRef ref) const { return stuck_.is_stuck(directory_.at(ref), carrier_.now()); }
  /// Extents that could not leave will be tried again, and the request may wait for that.
  bool retries_stuck(const Request& asking) const;
  /// Returns the charge of a new slot for the transfer.
  std::uint64_t slot_bytes_of(const Demote& transfer) const {
    return demoter_.slot_bytes_of(transfer);
  }

  // ---- Its parts

  Parts& parts() { return parts_; }
  const Parts& parts() const { return parts_; }
  Bounce& bounce() { return bounce_; }
  const Bounce& bounce() const { return bounce_; }
  SlotTiers& slots() { return slots_; }
  const SlotTiers& slots() const { return slots_; }
  const Stuck& stuck() const { return stuck_; }

  /// Checks what it can without extents and requests. Empty, or the breach.
  std::string check() const;
  /// By memory: bytes that transfers in progress will free.
  Vector<std::uint64_t> freeing() const;
  void test_begin_near_wrap(std::uint32_t left);
  /// After the last step: frees what the records of transfers own.
  void abandon() { carrier_.abandon(); }

 private:
  void job_done(Job& job);
  void housekeeping_done(const Job& job);
  void io_done(const SlotCompletion& reported);
  void issue(const Channel::Issue& issue);
  void shown(Show& transfer);
  void follow();

  // evict.cpp
  bool leave(ExtentRef ref, unsigned space, bool even_dirty, PageMask some);
  void drop_ended(Evict& transfer, bool dropped);
  void evicted(Evict& transfer);
  void left(Evict& transfer);
  bool sink(ExtentRef ref, unsigned space, Priority priority);
  bool has_room_below(ExtentRef ref, unsigned space) const;
  std::span<MemoryLedger* const> memories_below(ExtentRef ref, unsigned space);
  void spilled(const Carrier::Next& next);
  MemoryLedger& memory_with(const Carrier::Next& next) {
    return memories_.of(next.space, directory_.frame(next.space, next.ref));
  }
  void evict_written(const Carrier::Next& next);

  const Directory directory_;
  Workers& workers_;
  Memories& memories_;
  Journal& journal_;
  const MoverOptions options_;
  Bounce bounce_;
  SlotTiers& slots_;
  Stuck stuck_;
  Copies copies_;
  Carrier carrier_;
  Parts parts_;
  Promoter promoter_;
  Demoter demoter_;
  Relocator relocator_;
  Destager destager_;
  Gatherer gatherer_;
  bool left_watched_ = false;
  Vector<ExtentRef> watched_;
};

}  // namespace tiermem

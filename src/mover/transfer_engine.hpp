// The engine of transfers, from their start to their end. A transfer moves one extent: promote,
// demote, evict, and the smaller kinds (mover/transfer.hpp). The mover decides which extents move
// and with which frames. The engine carries the transfers through their stages, and reports their
// ends as values: take_ended(), left_watched(). It calls no part above it.
//
// The stepping thread only; never waits. Workers and slot tiers hold jobs and I/O of transfers.
//
//   live() == the number of transfers that are not idle
//   memory.freeing == the sum of Transfer::freeing over the transfers that free frames of it, and
//                     of its trim
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/arena.hpp"
#include "mover/backoff.hpp"
#include "mover/bounce.hpp"
#include "mover/channel.hpp"
#include "mover/ended.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/memory.hpp"
#include "mover/mover_options.hpp"
#include "mover/never.hpp"
#include "mover/request.hpp"
#include "mover/slot_ledger.hpp"
#include "mover/stock.hpp"
#include "mover/transfer.hpp"
#include "policy/watching.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/tier.hpp"

namespace tiermem {

class TransferEngine {
 public:
  /// `memories` by space, filled before the first step. `block` and `files` may be null.
  TransferEngine(Residency& residency, Deque<Memory>& memories, Journal& journal, Stock& stock,
                 SlotTier* block, SlotTier* files, Hands& hands, const MoverOptions& options);

  // ---- The step, in the order of its calls

  void begin_step(std::int64_t now) {
    now_ = now;
    left_watched_ = false;
  }
  /// Takes what workers and slot tiers have completed. Returns whether there was anything.
  bool take_completions();
  /// Transfers that waited for a place of the bounce memory go on. Returns whether any did.
  bool grant_places();
  /// Returns the ends since the last call, oldest first. Valid until the next call.
  std::span<const Ended> take_ended() { return ended_.take(); }
  const EndedList& ended() const { return ended_; }
  void retry_unmaps();
  /// Extents with pages that could not be read may have been tried by now.
  void note_rereads() { reread_last_ = now_ >= rereads_at_ ? now_ : reread_last_; }
  void serve_recopies();
  void serve_abandoned();
  void issue_io();
  /// Returns when the engine must be called without an event: now, a time, or kNever.
  std::int64_t next() const;
  /// Returns when an extent that could not leave may be tried again, for requests that wait for
  /// room. kNever if there is none.
  std::int64_t next_for_room() const;

  // ---- What the mover tells

  /// The number of active requests.
  void note_requests(std::size_t active) { requests_ = active; }
  /// A budget is being changed: no memory is taken ahead of need.
  void note_budget_change(bool on) { budget_changes_ = on; }
  /// A request waits for pins of the extent. An extent of these that leaves without a transfer sets
  /// left_watched().
  void watch(ExtentRef ref) { watched_.push_back(ref); }
  void unwatch(ExtentRef ref);
  void unwatch_all() { watched_.clear(); }
  bool left_watched() const { return left_watched_; }

  // ---- Starts. The extent has no transfer, unless the function says otherwise.

  /// Brings the extent, or `pages` of it, into the frame. `discards_for`: the request overwrites
  /// all of it. `shows`: it is wanted in its window on a device.
  void start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                     Request* discards_for, PageMask pages = 0, bool shows = false);
  /// With the room that the need has.
  void start_promote(Need& need, Priority priority);
  void start_show(const Need& need);
  void start_empty(ExtentRef ref, PageMask pages);
  void start_gather(Request& request, std::span<GatherRead> reads);
  /// Returns false if the extent cannot be written down now.
  bool start_demote(ExtentRef ref, unsigned space, bool evict_after, Priority priority);
  /// Gives up this space's copy, and writes it down first if it is the only one. Returns false if
  /// the extent cannot leave now.
  bool start_evict(ExtentRef ref, unsigned space, Priority priority);
  /// The frame goes with its bytes. The caller knows that they are elsewhere or unwanted. Returns
  /// false if the extent has a transfer or is pinned.
  bool leave(ExtentRef ref, unsigned space, bool even_dirty);

  // ---- Changes of transfers in progress

  /// The need wants an extent that is leaving its window: it comes back.
  void recall(const Need& need);
  /// Returns whether the request's stream may have the extent now and wait for the copy itself.
  bool lets_in(const Request& request, const Need& need);
  /// Pins one extent while its word is still `incoming`. Returns false if that is impossible.
  bool pin_incoming(Request& request, const Span& span);

  // Discards that the request has staged. Each does nothing for other extents.
  /// Views find the bytes. To be published by the phase.
  void give_place(const Request& request, ExtentRef ref);
  void publish_parked(const Request& request, ExtentRef ref);
  /// The request has ended, or must begin anew. A transfer that has not landed is undone then.
  void unpark(const Request& request, ExtentRef ref);

  /// The request has ended. Reads at a device go on without it.
  void desert_gather(const Request& request);

  // ---- Copies and slots of extents without transfers

  void drop_slot(ExtentRef ref);
  /// Writes that were refused for want of slots find some now.
  void room_in_slots();
  void give_parts(FrameId frame, unsigned space, PageMask pages);
  void prefetch_used(ExtentRef ref, Memory& memory);
  /// The only copy is lost with the space.
  void lose(ExtentRef ref, unsigned space);
  /// Lost extents that were not reported yet, by buffer.
  Map<std::uint32_t, std::uint32_t> take_losses() { return std::exchange(losses_, {}); }
  /// A transfer of this extent has ended, or is parked: the step lets its waiters look again.
  void extent_changed(ExtentRef ref, unsigned space, Status error = {},
                      Ended::Failed failed = Ended::Failed::to_come);

  // ---- Questions

  std::uint32_t live() const { return transfers_live_; }
  unsigned prefetches() const { return prefetches_; }
  /// Jobs of workers that belong to no transfer.
  unsigned housekeeping() const;
  /// No worker and no device has anything to do.
  bool rests() const {
    return live() == 0 && housekeeping() == 0 && own_jobs_.empty() && drops_.empty();
  }
  bool retries() const { return !recopies_.empty() || !abandoned_.empty(); }
  /// Null if the extent has none.
  const Transfer* transfer_of(ExtentRef ref) const {
    const std::uint32_t at = directory_.at(ref).transfer;
    return at != 0 ? &transfers_[at - 1] : nullptr;
  }
  template <typename Visit>
  void each_transfer(Visit&& visit) const {
    for (const Transfer& transfer : transfers_) {
      if (transfer.kind != Transfer::Kind::idle) {
        visit(transfer);
      }
    }
  }
  /// Returns the transfer that stages the extent for a discard of the request, or null.
  const Transfer* parked_for(const Request& request, ExtentRef ref) const;
  /// Returns whether it has landed.
  bool is_parked(const Request& request, ExtentRef ref) const {
    const Transfer* const mine = parked_for(request, ref);
    return mine != nullptr && mine->stage == Transfer::Stage::parked;
  }
  /// The extent is leaving its window, and will be back.
  bool comes_back(ExtentRef ref) const;
  /// There is a block tier, and its writes are not paused for this extent.
  bool can_write(ExtentRef ref) const {
    return block_slots_.can_write(now_, false) || block_slots_.can_write(now_, has_own_slot(ref));
  }
  bool may_retreat(ExtentRef ref, unsigned space) const;
  /// The last try of the extent to leave failed, and it is not tried again yet.
  bool is_stuck(ExtentRef ref) const { return directory_.at(ref).stuck && now_ < stuck_until_; }
  /// Extents that could not leave will be tried again, and the request may wait for that.
  bool retries_stuck(const Request& asking) const;
  /// Buffers of this kind can have extents of which some pages are resident.
  bool takes_parts(const BufferRecord& record) const;
  bool takes_parts(ExtentRef ref) const { return takes_parts(directory_.record_of(ref)); }
  /// Returns the pages that are present when the extent's transfer has ended.
  PageMask parts_there(ExtentRef ref) const;
  bool can_begin_parts(ExtentRef ref);
  std::uint32_t checksum_block(const BufferRecord& record) const;
  /// [any] The smallest read of this buffer's slots and files: a block that has a checksum.
  std::uint32_t read_unit(const BufferRecord& record) const;
  std::uint32_t checksum_block(ExtentRef ref) const {
    return checksum_block(directory_.record_of(ref));
  }
  /// Returns the charge of the extent's slot.
  std::uint64_t slot_bytes_of(ExtentRef ref) const;
  /// Returns the pages of a partial extent that are zeros unless they are in memory.
  PageMask zero_pages(const Extent& extent) const;
  /// The pages that a demand read brings, chosen by how much of earlier ones was used.
  PartSize& part_size() { return part_size_; }
  // The admission of each request that may bring the extent has made its record.
  Recency& recency_for(unsigned space, [[maybe_unused]] ExtentRef ref) {
    assert(ref < memories_[space].recency.capacity());
    return memories_[space].recency;
  }

  // ---- Its parts

  Bounce& bounce() { return bounce_; }
  const Bounce& bounce() const { return bounce_; }
  SlotLedger& block_slots() { return block_slots_; }
  const SlotLedger& block_slots() const { return block_slots_; }
  SlotLedger& file_slots() { return file_slots_; }
  const Channel& block_channel() const { return block_channel_; }

  /// Checks what it can without extents and requests. Empty, or the breach.
  std::string check() const;
  /// By memory: bytes that transfers in progress will free.
  Vector<std::uint64_t> freeing() const;
  std::int64_t stuck_since() const { return stuck_since_; }
  std::int64_t stuck_until() const { return stuck_until_; }
  void test_begin_near_wrap(std::uint32_t left);
  /// After the last step: frees what the records of transfers own.
  void abandon();

  static bool writes(const Transfer& transfer) {
    return transfer.kind == Transfer::Kind::demote && transfer.stage != Transfer::Stage::read;
  }
  static unsigned frees_in(const Transfer& transfer) {
    return transfer.retreats ? transfer.source : transfer.space;
  }
  /// Returns the charge of a new slot for the transfer.
  std::uint64_t slot_bytes_of(const Transfer& transfer) const;

 private:
  // transfers.cpp: their records, and the ends of their jobs and I/O.
  Transfer& new_transfer(Transfer::Kind kind, ExtentRef ref, unsigned space, Priority priority);
  bool start_copy(Transfer& transfer, unsigned space);
  void end_transfer(Transfer& transfer);
  void submit_job(Transfer& transfer, JobStep steps);
  bool is_own_job(const Job& job) const;
  bool run_own_jobs();
  void job_done(Job& job);
  void housekeeping_done(const Job& job);
  static Ended::Failed failure_of(const Transfer& promote) {
    return promote.discard ? Ended::Failed::to_come : Ended::Failed::to_read;
  }

  // arrivals.cpp: copies to devices that a stream waits for by itself.
  bool take_over(Transfer& transfer);
  void copy_begun(const Job& job, std::uint64_t ordinal);
  bool abandon_promote(Transfer& transfer, const Status* error);
  void give_back_source(Transfer& transfer);

  // promote.cpp, direct.cpp
  void continue_promote(Transfer& transfer);
  void land(Transfer& transfer);
  bool by_peer(const Transfer& transfer) const;
  bool goes_direct(Transfer& transfer);
  void go_direct(Transfer& transfer);
  void went_direct(Transfer& transfer);
  bool has_home(ExtentRef ref, FrameId frame) const;
  bool takes_source_home(Transfer& transfer);
  void source_taken_home(Transfer& transfer);
  void to_window(ExtentRef ref);
  void landed(Transfer& transfer);
  void await_writers(Transfer& transfer);
  void give_place(const Transfer& transfer);
  void publish(Transfer& transfer);
  void promote_failed(Transfer& transfer, Status status);
  /// The extent goes back to where it was. `error`, if any, reaches its waiters.
  void undo_promote(Transfer& transfer, const Status* error);
  void stock_ended(ExtentRef ref, bool came);

  // demote.cpp
  void find_slot(Transfer& transfer);
  SlotId new_slot(Transfer& transfer);
  void seal(Transfer& transfer);
  void write_and_hash(Transfer& transfer);
  void write_changed(Transfer& transfer);
  void write_done(Transfer& transfer, const SlotCompletion& completion);
  void written(Transfer& transfer);
  void demote_failed(Transfer& transfer, Status status);

  // stored.cpp: slots that have some pages of their extents, and slots that give way.
  bool measures(const Transfer& transfer) const;
  void measure(Transfer& transfer);
  void measured(Transfer& transfer);
  const SlotPages* slot_pages_of(const Transfer& transfer) const;
  void set_range(Transfer& transfer, std::uint64_t from, std::uint64_t length);
  JobStep spreads(Transfer& transfer);
  void send_stored(Transfer& transfer, const SlotPages& pages);
  bool run_ended(const SlotCompletion& run, SlotCompletion& all);
  bool gives_way(ExtentRef ref) const;
  bool has_own_slot(ExtentRef ref) const;
  bool next_slot_gives_way();

  // withdraw.cpp
  bool start_withdraw(ExtentRef ref, unsigned space, bool evict_after, Priority priority);
  void keep(Transfer& transfer);
  void leaves_later(ExtentRef ref);
  void withdraw(Transfer& transfer);
  bool run_drops();
  void withdrawn(Transfer& transfer);
  void map_back(Transfer& transfer);
  void mapped_back(Transfer& transfer);
  void stay(Transfer& transfer, Status why);
  void gone(Transfer& transfer);

  // parts.cpp
  void read_parts(Transfer& transfer);
  void read_parts_into_bounce(Transfer& transfer);
  void land_parts(Transfer& transfer);
  void publish_parts(Transfer& transfer);
  void undo_parts(Transfer& transfer, const Status* error);
  void write_changed_parts(Transfer& transfer);
  void write_next_parts(Transfer& transfer);
  void make_whole(Transfer& transfer);
  void read_missing(Transfer& transfer);
  void missing_came(Transfer& transfer);
  void find_slot_for_whole(Transfer& transfer);
  void whole_written(Transfer& transfer);
  void whole_measured(Transfer& transfer);
  void parts_not_written(Transfer& transfer, Status status);
  void emptied(Transfer& transfer);
  bool take_bounce(Transfer& transfer, unsigned pages);
  void set_bounce(Transfer& transfer, const Bounce::Place& place);
  void give_bounce(Transfer& transfer);

  // gather.cpp
  void send_read(Transfer& transfer, std::uint32_t number);
  void gather_read_done(const SlotCompletion& completion);
  void end_gather(Transfer& transfer);
  void end_deserted();

  // evict.cpp
  void finish_evict(ExtentRef ref, unsigned space, FrameId frame, std::int64_t begun_ns);
  void settle(ExtentRef ref);
  void give_up_slot(Extent& extent);
  bool retreat(ExtentRef ref, unsigned space);
  void retreated(ExtentRef ref, unsigned space);

  // slot_io.cpp: transfers go to the channels and come back from the slot tiers.
  void queue_io(Transfer& transfer);
  void send(Transfer& transfer, unsigned depth);
  void io_done(const SlotCompletion& completion);
  Status io_error(const Transfer& transfer, Code code, int native, std::uint16_t device,
                  std::uint64_t offset);
  bool take_staging(Transfer& transfer);
  void give_staging(Transfer& transfer);
  std::string check_channels() const;
  std::string check_bounce() const;

  // Small lookups.
  Channel& channel_of(const Transfer& transfer) {
    return transfer.slot_tier == files_ && files_ != nullptr ? files_channel_ : block_channel_;
  }
  Channel::Load load_of(const Transfer& transfer) const {
    return {io_bytes(transfer), writes(transfer), transfer.priority};
  }
  // The end of the transfer will free this many bytes.
  void set_freeing(Transfer& transfer, std::uint64_t bytes) {
    memories_[frees_in(transfer)].freeing += bytes - transfer.freeing;  // Wraps, and back.
    transfer.freeing = bytes;
  }
  // Null for a frame of the host that is not in its window, or will not be.
  std::byte* window_of(const Transfer& transfer) const {
    return transfer.at_home ? nullptr : directory_.window_at(transfer.ref, transfer.space);
  }
  // Bytes that a transfer reads or writes.
  std::uint64_t io_bytes(const Transfer& transfer) const {
    return transfer.stored != 0   ? transfer.stored
           : transfer.length != 0 ? transfer.length
                                  : directory_.bytes_of(transfer.ref);
  }

  // Constant after construction.
  Residency& residency_;
  const Directory directory_;
  Hands& hands_;
  const MoverOptions options_;
  SlotTier* const block_;
  SlotTier* const files_;
  Deque<Memory>& memories_;
  Journal& journal_;
  Stock& stock_;

  std::int64_t now_ = 0;
  std::size_t requests_ = 0;
  bool budget_changes_ = false;
  bool left_watched_ = false;
  Vector<ExtentRef> watched_;
  EndedList ended_;

  Channel block_channel_, files_channel_;
  SlotLedger block_slots_, file_slots_;
  Bounce bounce_;
  Deque<Transfer> transfers_;  // Stable addresses.
  Vector<std::uint32_t> free_transfers_;
  std::uint32_t transfers_live_ = 0;
  unsigned prefetches_ = 0;          // In progress.
  Deque<Job*> own_jobs_;             // To be run by take_completions.
  Deque<std::uint32_t> drops_;       // Transfers; likewise.
  Vector<std::uint32_t> recopies_;   // Promotes with a source that is or was written.
  Vector<std::uint32_t> abandoned_;  // Promotes that failed and are still pinned by streams.
  Vector<std::uint32_t> deserted_;   // Gathers to end: no request and no read in progress.
  // Evicts with a frame that the kernel refused to take out of its window. No other extent may get
  // the frame, so the unmap is tried again after the backoff.
  Vector<std::uint32_t> unmaps_;
  Backoff unmap_backoff_;
  PartSize part_size_;
  Watching watching_;
  Map<std::uint32_t, std::uint32_t> losses_;  // By buffer.

  // Extents that could not leave are not tried again before these times. Either the kernel kept
  // them in their windows, or their other pages could not be read. Refusals of room wait for them:
  // up to kMostStuckNs for the kernel, and for one more try to read.
  static constexpr std::int64_t kStuckNs = 10'000'000;
  static constexpr std::int64_t kMostStuckNs = 10'000'000'000;
  std::int64_t stuck_until_ = 0;
  std::int64_t stuck_since_ = 0;
  // Until then extents are stuck because they need another slot, unless one becomes free.
  std::int64_t lacks_slot_until_ = 0;
  // The next try of extents that the kernel kept.
  std::int64_t withdrawals_again_at_ = 0;
  std::int64_t rereads_at_ = 0;   // The next try of extents with pages that could not be read.
  std::int64_t reread_last_ = 0;  // The last step in which none of these had to wait.
};

}  // namespace tiermem

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
// Parts. Directory, Memory, Channel, SlotLedger, Bounce, ReadAhead and Journal have data of their
// own, and never call the mover: they return values, and the mover acts on them.
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
#include "mover/backoff.hpp"
#include "mover/bounce.hpp"
#include "mover/channel.hpp"
#include "mover/ended.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/memory.hpp"
#include "mover/mover_options.hpp"
#include "mover/never.hpp"
#include "mover/read_ahead.hpp"
#include "mover/request.hpp"
#include "mover/slot_ledger.hpp"
#include "mover/transfer.hpp"
#include "observe/receipts.hpp"
#include "policy/watching.hpp"
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
  bool rested() const {
    return resting_ && transfers_live_ == 0 && housekeeping() == 0 && own_jobs_.empty() &&
           drops_.empty();
  }
  // After a fork, while it still rests, and before the next step.
  /// False once the numbers of forks are used up: the next child gets no context.
  bool can_follow_fork() const { return !block_slots_.shared().is_full(); }
  /// In the parent: a child reads the slots there are. Its number, for child_ended().
  std::uint32_t parent_of_child() { return block_slots_.parent_of_child(); }
  /// In the child: the slots there are belong to the parent. Requests of threads that do not exist
  /// here end; frees go on.
  void child_of_parent();
  /// In the parent, between two steps.
  void child_ended(std::uint32_t child);
  /// Before the first step: the counters that may wrap begin so far below their end.
  void test_begin_near_wrap(std::uint32_t left);
  /// A device space's bytes can come from a slot, and go there.
  bool has_staging() const { return bounce_.has_staging(); }
  /// Slots wait for the end of a child.
  bool waits_for_child() const { return !block_slots_.shared().parked().empty(); }

  bool idle() const {
    return active_.empty() && transfers_live_ == 0 && housekeeping() == 0 && reclaimed_.empty();
  }
  /// [stepping thread] Changes whenever a transfer ends or a request completes.
  std::uint64_t activity() const { return journal_.activity(); }
  /// [stepping thread]
  void fill_stats(Stats& stats);
  /// [stepping thread] Totals, and the newest `most` receipts.
  void copy_receipts(ReceiptsCopy& to, std::size_t most) const { journal_.copy_receipts(to, most); }

  /// [any] The smallest read of this buffer's slots and files: a block that has a checksum.
  std::uint32_t read_unit(const BufferRecord& record) const;

  /// [stepping thread] Bytes of bounce areas, which are charged to the host's budget.
  std::uint64_t bounce_bytes() const { return bounce_.area_bytes_in_all(); }

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
  std::int64_t next_of_transfers() const;
  std::int64_t next_of_requests() const;
  std::int64_t next_of_room() const;
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
  bool find_record(unsigned space, ExtentRef ref);
  void enlist(Request& request);
  void end_requests_for(std::uint32_t index);
  static const Span* stale_span(const Request& request);
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
  std::string check_channels();
  std::string check_bounce();
  std::string unused_extent(ExtentRef ref);

  // needs.cpp: what each extent of a request lacks.
  enum class Arm : std::uint8_t { ready, wait_transfer, wait_pins, queued };
  void build_needs(Request& request);
  void add_need(Request& request, const Span& span, std::uint32_t i);
  void activate(Request& request);
  void arm_more(Request& request);
  void arm(Request& request, std::uint32_t index);
  Arm arm_acquire(Request& request, Need& need);
  void note_touch(const Request& touch, ExtentRef ref);
  Arm arm_leave(Request& request, Need& need);
  void keep_refused(ExtentRef ref);
  bool ready(const Need& need) const;
  bool shown(const Need& need, FrameId frame) const;
  bool touches_end(ExtentRef ref) const;
  bool nothing_to_read(const Need& need) const;
  std::uint64_t demanded_bytes(const Request& request) const;
  bool must_come(ExtentRef ref, unsigned space, PageMask pages) const;

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
  bool stop_waiting(Request& request, std::uint32_t index);
  void forget_waits(Request& request);
  static Ended::Failed failure_of(const Transfer& promote) {
    return promote.discard ? Ended::Failed::to_come : Ended::Failed::to_read;
  }
  void extent_changed(ExtentRef ref, unsigned space, Status error = {},
                      Ended::Failed failed = Ended::Failed::to_come);
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

  // room.cpp: frames, victims, prefetch.
  void serve_room();
  bool collect(Request& request);
  bool take_back_for(Need& need);
  bool lacks_copy(const Need& need) const;
  FrameId take_frame(ExtentRef ref, unsigned space);
  void serve_taken_frames();
  void trim(Memory& memory, std::uint64_t bytes);
  static std::uint64_t next_trim(const Memory& memory);
  void make_room(unsigned space, std::uint64_t bytes, Priority priority, bool desperate = false);
  void note_shortage(unsigned space, std::uint64_t bytes);
  void evict_ahead(unsigned space, std::uint64_t bytes, bool parts = false);
  void serve_prefetch();
  static constexpr std::uint64_t kKeptSpare = std::uint64_t{4} << 20;
  bool reclaim_spare();
  void limit_spares();
  void serve_budget();
  void serve_records();
  void make_do(Memory& memory, std::uint64_t bytes, const Status& shortage);
  void end_shortages();
  bool searched(const Memory& memory) const;
  bool search_goes_on() const;

  // transfers.cpp: their records, and the ends of their jobs and I/O.
  Transfer& new_transfer(Transfer::Kind kind, ExtentRef ref, unsigned space, Priority priority);
  bool start_copy(Transfer& transfer, unsigned space);
  void end_transfer(Transfer& transfer);
  void submit_job(Transfer& transfer, JobStep steps);
  bool is_own_job(const Job& job) const;
  // Jobs of workers that belong to no transfer.
  unsigned housekeeping() const {
    return trims_ + bounce_.jobs() + block_slots_.jobs() + file_slots_.jobs();
  }
  bool run_own_jobs();
  void job_done(Job& job);

  // whereabouts.cpp
  void describe_location(Request& request);

  // arrivals.cpp: copies to devices that a stream waits for by itself.
  void copy_begun(const Job& job, std::uint64_t ordinal);
  bool lets_in(const Request& request, const Need& need);
  bool take_over(Transfer& transfer);
  bool fill_views(Request& request);
  Transfer* parked_for(const Request& request, ExtentRef ref);
  bool pin_for(Request& request, const Span& span);
  bool pin_one_for(Request& request, const Span& span);
  bool abandon_promote(Transfer& transfer, const Status* error);
  void serve_abandoned();
  void give_back_source(Transfer& transfer);

  // promote.cpp
  void start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                     Request* discards_for, PageMask pages = 0, bool shows = false);
  void start_promote(Need& need, Priority priority);
  void start_show(const Need& need);
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
  void serve_recopies();
  void give_place(const Transfer& transfer);
  void publish(Transfer& transfer);
  void promote_failed(Transfer& transfer, Status status);
  void undo_promote(Transfer& transfer, const Status* error);

  // demote.cpp
  bool start_demote(ExtentRef ref, unsigned space, bool evict_after, Priority priority);
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
  std::uint64_t slot_bytes_of(ExtentRef ref) const;
  std::uint64_t slot_bytes_of(const Transfer& transfer) const;
  PageMask zero_pages(const Extent& extent) const;
  void set_range(Transfer& transfer, std::uint64_t from, std::uint64_t length);
  JobStep spreads(Transfer& transfer);
  void send_stored(Transfer& transfer, const SlotPages& pages);
  bool run_ended(const SlotCompletion& run, SlotCompletion& all);
  bool gives_way(ExtentRef ref) const;
  bool next_slot_gives_way();

  // withdraw.cpp
  bool start_withdraw(ExtentRef ref, unsigned space, bool evict_after, Priority priority);
  void recall(const Need& need);
  bool comes_back(ExtentRef ref) const;
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
  bool takes_parts(ExtentRef ref) const { return takes_parts(directory_.record_of(ref)); }
  bool takes_parts(const BufferRecord& record) const;
  PageMask parts_there(ExtentRef ref) const;
  bool can_begin_parts(ExtentRef ref);
  std::uint32_t checksum_block(ExtentRef ref) const {
    return checksum_block(directory_.record_of(ref));
  }
  std::uint32_t checksum_block(const BufferRecord& record) const;
  void plan(Need& need);
  std::uint64_t lacking_bytes(Need& need);
  bool take_room(Need& need);
  void give_room(Need& need);
  bool plan_stands(const Need& need);
  bool room_fits(const Need& need);
  void give_parts(FrameId frame, unsigned space, PageMask pages);
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
  PageMask pages_discarded(const Span& span, std::uint32_t i) const;
  Arm empty_pages(Request& request, Need& need);
  void start_empty(ExtentRef ref, PageMask pages);
  void emptied(Transfer& transfer);
  bool take_bounce(Transfer& transfer, unsigned pages);
  void set_bounce(Transfer& transfer, const Bounce::Place& place);
  void give_bounce(Transfer& transfer);
  bool grant_places();
  void restore_bounce();

  // gather.cpp
  static std::span<GatherRead> reads_of(const Request& request, ExtentRef ref);
  void build_gather_needs(Request& request);
  GatherRead::Found gathers_from(ExtentRef ref, std::span<const GatherRead> reads) const;
  void compare_known(ExtentRef ref, std::span<GatherRead> reads) const;
  Arm arm_gather(Request& request, const Need& need);
  void start_gather(Request& request, std::span<GatherRead> reads);
  void send_read(Transfer& transfer, std::uint32_t number);
  void gather_read_done(const SlotCompletion& completion);
  void end_gather(Transfer& transfer);
  void desert_gather(const Request& request);
  void end_deserted();

  // hand_over.cpp
  bool at_rest_below(ExtentRef ref) const;
  void hand_over(Request& request);
  bool hand_over(ExtentRef from, ExtentRef to);

  // evict.cpp
  bool start_evict(ExtentRef ref, unsigned space, Priority priority);
  bool leave(ExtentRef ref, unsigned space, bool even_dirty);
  void retry_unmaps();
  void finish_evict(ExtentRef ref, unsigned space, FrameId frame, std::int64_t begun_ns);
  void settle(ExtentRef ref);
  void drop_slot(ExtentRef ref);
  void give_up_slot(Extent& extent);
  void room_in_slots();
  bool drop_from_slots(std::uint64_t bytes);

  // retreat.cpp: what leaves a device.
  bool may_retreat(ExtentRef ref, unsigned space) const;
  bool retreat(ExtentRef ref, unsigned space);
  void retreated(ExtentRef ref, unsigned space);
  Arm arm_retreat(Request& request, Need& need);
  void note_left(Request& request, const Need& need);
  void begin_giving_back(Request& request);
  void give_back_for(Request& request);
  void serve_giving_back();

  // loss.cpp: devices that are gone.
  void serve_losses();
  void begin_loss(Memory& memory);
  bool let_go_of_lost(ExtentRef ref, Memory& memory);
  void lose(ExtentRef ref, unsigned space);
  Status no_bytes(ExtentRef ref) const;
  const Memory* wants_lost(const Request& request) const;
  static Status refuse_lost(const Memory& memory);

  // stock.cpp
  void make_stock(Request& request);
  void stocked(ExtentRef ref, bool made);
  void end_of_stock(unsigned shift);

  // slot_io.cpp: transfers go to the channels and come back from the slot tiers.
  void queue_io(Transfer& transfer);
  void issue_io();
  void send(Transfer& transfer, unsigned depth);
  void io_done(const SlotCompletion& completion);
  Status io_error(const Transfer& transfer, Code code, int native, std::uint16_t device,
                  std::uint64_t offset);
  Channel& channel_of(const Transfer& transfer) {
    return transfer.slot_tier == files_ && files_ != nullptr ? files_channel_ : block_channel_;
  }
  Channel::Load load_of(const Transfer& transfer) const {
    return {io_bytes(transfer), writes(transfer), transfer.priority};
  }
  bool take_staging(Transfer& transfer);
  void give_staging(Transfer& transfer);

  /// The bytes of records of extents that are not charged to the budget, and the step in which the
  /// charge grows.
  static constexpr std::uint64_t kFreeRecords = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kRecordsStep = std::uint64_t{64} << 10;

  // Small lookups.
  static unsigned frees_in(const Transfer& transfer) {
    return transfer.retreats ? transfer.source : transfer.space;
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
  // There is a block tier, and its writes are not paused for this extent.
  bool can_write(ExtentRef ref) const {
    return block_slots_.can_write(now_, false) || block_slots_.can_write(now_, has_own_slot(ref));
  }
  bool has_own_slot(ExtentRef ref) const;
  unsigned space_of(Place place) const;
  // The admission of each request that may bring the extent has made its record.
  Recency& recency_for(unsigned space, [[maybe_unused]] ExtentRef ref) {
    assert(ref < memories_[space].recency.capacity());
    return memories_[space].recency;
  }

  struct Waiter {
    Request* request = nullptr;
    std::uint32_t need = 0;
    std::uint32_t next = 0;   // + 1
    std::uint64_t since = 0;  // The number of ends when it began to wait.
  };
  Recency::Candidate candidate(ExtentRef ref, Memory& memory);
  void prefetch_used(ExtentRef ref, Memory& memory);
  // Bytes that a transfer reads or writes.
  std::uint64_t io_bytes(const Transfer& transfer) const {
    return transfer.stored != 0   ? transfer.stored
           : transfer.length != 0 ? transfer.length
                                  : directory_.bytes_of(transfer.ref);
  }
  static bool writes(const Transfer& transfer) {
    return transfer.kind == Transfer::Kind::demote && transfer.stage != Transfer::Stage::read;
  }

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
  Channel block_channel_, files_channel_;
  SlotLedger block_slots_, file_slots_;
  ReadAhead read_ahead_;
  Bounce bounce_;
  EndedList ended_;  // Empty between two steps.
  bool resting_ = false;
  bool refuses_ = false;     // No memory for more requests than those in progress.
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
  unsigned budget_space_ = kHost;    // The space of the changed budget.
  std::uint64_t budget_before_ = 0;  // Restored if the new one cannot be met.
  Vector<Request*> giving_back_;     // Retreats that wait for the trims of their devices.
  Vector<Request*> completed_;

  // Room.
  Vector<Recency::Victim> victims_;
  std::uint64_t records_charged_ = 0;  // To the host's budget.
  Vector<std::uint32_t> reclaimed_;    // Spare buffers given up, to be freed by the next step.
  struct Stock {
    unsigned under_way = 0;  // Spare buffers of the order that are being made.
    Vector<ExtentRef> made;  // By the last order.
  };
  std::array<Stock, 27> stock_;  // By the logarithm of the extent's size.
  static constexpr unsigned kMostFruitless = 64;
  unsigned fruitless_ = 0;  // Consecutive steps that only continued the search for victims.
  bool seeks_ = false;      // A request that has its other extents searches for a victim.
  bool went_on_ = false;    // The last step asked for this one.
  bool desperate_ = false;  // The last search before a request is refused.
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

  // Transfers.
  Deque<Transfer> transfers_;  // Stable addresses.
  Vector<std::uint32_t> free_transfers_;
  std::uint32_t transfers_live_ = 0;
  unsigned prefetches_ = 0;          // In progress.
  unsigned trims_ = 0;               // In progress.
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
  Map<std::uint32_t, std::uint32_t> losses_;  // By buffer: lost extents that were not reported yet.
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

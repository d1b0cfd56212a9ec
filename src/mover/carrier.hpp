// The carrier: what transfers of all kinds share. It has their records, gives their jobs to workers
// and their I/O to the slot tiers, and takes places in the bounce memory for them. It knows which
// transfer something has ended for, and not what comes next: that is for the families of transfers
// (mover/promoter.hpp, parts.hpp, demoter.hpp, gatherer.hpp). The stepping thread only; never
// waits. Workers and slot tiers hold jobs and I/O of transfers.
//
//   live() == the number of records in use
//   memory.freeing == the sum of Transfer::freeing over the transfers that free frames of it, and
//                     of its trim
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "base/arena.hpp"
#include "mover/backoff.hpp"
#include "mover/bounce.hpp"
#include "mover/copies.hpp"
#include "mover/ended.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/mover_options.hpp"
#include "mover/never.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/transfer.hpp"
#include "policy/route.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class Carrier {
 public:
  /// The action of the engine after the end of a transfer, as a value.
  struct Next {
    enum class What : std::uint8_t {
      evict,          ///< The extent was written down because its frame is wanted.
      leave_source,   ///< The extent was copied to the host because the device's frame is wanted.
      give_up_spare,  ///< The extent of a spare buffer that is not kept.
    };
    What what = What::evict;
    ExtentRef ref = 0;
    std::uint8_t space = kHost;
    Priority priority = Priority::demand;
    Reason reason = Reason::none;
  };

  Carrier(Residency& residency, Memories& memories, Journal& journal, Bounce& bounce,
          SlotTiers& slots, Copies& copies, Workers& workers, const MoverOptions& options);

  void begin_step(std::int64_t now) { now_ = now; }
  std::int64_t now() const { return now_; }

  // ---- Records

  /// Creates a transfer of the extent, which has none.
  template <typename T>
  T& create(ExtentRef ref, unsigned space, Priority priority);
  /// Ends the transfer. The record is void after this.
  void end(Transfer& transfer);
  Transfer& at(std::uint32_t number) { return *heads_[number]; }
  template <typename T>
  T& at(std::uint32_t number) {
    return as<T>(*heads_[number]);
  }
  /// Returns the transfer of the extent, or null.
  Transfer* transfer_of(ExtentRef ref) {
    const std::uint32_t at = directory_.at(ref).transfer;
    return at != 0 ? heads_[at - 1] : nullptr;
  }
  const Transfer* transfer_of(ExtentRef ref) const {
    const std::uint32_t at = directory_.at(ref).transfer;
    return at != 0 ? heads_[at - 1] : nullptr;
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const Transfer* transfer : heads_) {
      if (transfer != nullptr) {
        visit(*transfer);
      }
    }
  }
  std::uint32_t live() const { return live_; }
  unsigned prefetches() const { return prefetches_; }
  /// The transfer does not count as a prefetch any more.
  void drop_prefetch(Transfer& transfer);
  /// The memory in which the transfer works: that of its frame.
  MemoryLedger& memory_of(const Transfer& transfer) {
    return memories_.of(transfer.space, transfer.frame);
  }
  const MemoryLedger& memory_of(const Transfer& transfer) const {
    return memories_.of(transfer.space, transfer.frame);
  }
  /// The end of the transfer, which frees nothing so far, will free this many bytes of the memory.
  void set_freeing(Transfer& transfer, MemoryLedger& memory, std::uint64_t bytes) {
    assert(transfer.freeing == 0);
    transfer.frees_in = static_cast<std::uint8_t>(memory.index);
    transfer.freeing = bytes;
    memory.freeing += bytes;
  }
  /// The end of the transfer will free nothing.
  void free_nothing(Transfer& transfer) {
    memories_.at(transfer.frees_in).freeing -= transfer.freeing;
    transfer.freeing = 0;
  }
  /// Pages of the extent leave, and others stay.
  bool others_stay(const Transfer& transfer) const {
    return transfer.pages != 0 && transfer.pages != directory_.at(transfer.ref).parts;
  }
  /// The extent is leaving its window or its frame, and will be back.
  bool comes_back(ExtentRef ref) const;
  /// After the last step: frees what the records own.
  void abandon();

  // ---- Jobs

  void submit(Transfer& transfer, JobStep steps);
  /// Begins a copy of that space's bytes. Returns false if a writer is pinned: the copy will not
  /// count.
  bool start_copy(Transfer& transfer, unsigned space);
  /// The frame of the transfer leaves its window with others, if it was not written.
  void drop(Transfer& transfer) {
    advance(transfer, Stage::drop);
    drops_.push_back(transfer.job.transfer);
  }
  /// Takes the oldest transfers with drop(), as many as `numbers` holds. Returns how many.
  std::size_t take_drops(std::span<std::uint32_t> numbers);
  bool any_drops() const { return !drops_.empty(); }
  /// The number of active requests decides which jobs run inline.
  void note_requests(std::size_t active) { requests_ = active; }
  /// Runs the next inline job and returns it, or null: none is left, or the step has run `done`
  /// bytes of them and gets too long. They do not run where they are submitted, because the caller
  /// is in the middle of an operation.
  Job* run_own_job(std::uint64_t& done);
  bool any_own_jobs() const { return !own_jobs_.empty(); }
  /// Checks an unmap that has ended. Returns false if the kernel refused to take the frame out of
  /// its window: no other extent may get the frame, so the unmap is tried again after a backoff.
  bool unmapped(Transfer& transfer);
  void retry_unmaps();

  // ---- I/O

  void queue_io(Transfer& transfer);
  /// The job of the next pages that come is for the thread that touched them, if their slot tier
  /// lets it read.
  void offer_to_toucher() { offered_ = true; }
  /// Ends the offer. Returns the job that the thread must run, or null.
  Job* end_offer() {
    offered_ = false;
    return std::exchange(given_, nullptr);
  }
  /// Returns whether the thread that touched the pages gets the job. The transfer then gets no I/O,
  /// as the job reads. `reads`: there is something to read.
  bool gives_to_toucher(PromoteParts& transfer, bool reads);
  /// The thread has run the job.
  void note_done_by_toucher(PromoteParts& transfer);
  void send(Transfer& transfer, unsigned depth);
  /// The slot tier has completed the transfer's I/O.
  void io_ended(Transfer& transfer, const SlotCompletion& completion);
  /// The job that copied between the slot and the device has ended. Returns whether it worked.
  bool direct_ended(Transfer& transfer);
  Status io_error(const Transfer& transfer, const SlotCompletion& completion) const;
  /// The read has failed. Returns true if it is made once more. Otherwise `why` is the error.
  bool reads_again(Transfer& transfer, const SlotCompletion& completion, Status& why);
  /// The bytes that were read are not those that were written. Returns true if they are read once
  /// more. Otherwise `why` is the error.
  bool reads_again(Transfer& transfer, Status& why);
  /// The slot cannot be read, or has wrong bytes. If it has a replica, the slot is given up, and
  /// the transfer reads from the replica next. Returns whether it does.
  bool falls_back(Transfer& transfer);
  /// The bytes of the extent that the transfer reads or writes next.
  void set_range(Transfer& transfer, std::uint64_t from, std::uint64_t length);
  /// Returns the bytes that the transfer reads or writes.
  std::uint64_t io_bytes(const Transfer& transfer) const {
    return transfer.stored != 0   ? transfer.stored
           : transfer.length != 0 ? transfer.length
                                  : directory_.bytes_of(transfer.ref);
  }
  SlotPages* slot_pages_of(const Transfer& transfer) const;
  JobStep spreads(Transfer& transfer) const;
  /// Returns the steps that check `pages` of a job, each with its own checksum in `sums`. Pages of
  /// a file that nothing has read before get their checksums.
  static JobStep verifies(const Checksums& sums, PageMask pages) {
    return sums.seen(pages) ? kVerify : kVerify | kHash;
  }
  /// Returns the facts about a transfer between a slot and a memory by which its way is chosen.
  Route::Ends ends_of(const Transfer& transfer) const;
  /// Returns a memory as an end of a transfer.
  Route::End end_at(unsigned space) const {
    return memories_.space(space).host_addressable() ? Route::End::host : Route::End::device;
  }

  // ---- Places in the bounce memory

  /// Takes a place in the staging. Returns false if the transfer waits for one.
  bool take_staging(Transfer& transfer);
  void give_staging(Transfer& transfer);
  /// Takes a place of `pages` pages. Returns false if the transfer waits for one.
  bool take_bounce(Transfer& transfer, unsigned pages);
  void set_bounce(Transfer& transfer, const Bounce::Place& place);

  // ---- Ends

  /// A transfer of this extent has ended, or is parked: the step lets its waiters look again.
  void extent_changed(ExtentRef ref, unsigned space, Status error = {},
                      Ended::Failed failed = Ended::Failed::to_come);
  /// A copy to a device has begun.
  void copy_begun(ExtentRef ref, unsigned space);
  const EndedList& ended() const { return ended_; }
  std::span<const Ended> take_ended() { return ended_.take(); }
  void then(const Next& next) { next_.push_back(next); }
  Vector<Next> take_next() { return std::exchange(next_, {}); }

  /// Returns when the step must look without an event: now, a time, or kNever.
  std::int64_t next(std::int64_t now) const;
  /// Checks the invariants. Empty, or the breach.
  std::string check() const;

 private:
  using Record = std::variant<std::monostate, Promote, PromoteParts, Demote, DemoteParts, Evict,
                              Empty, Show, Relocate, Destage, Gather>;

  std::uint32_t new_record();
  SlotTransfer io_of(const Transfer& transfer) const;
  void note_io(Transfer& transfer, const SlotCompletion& completion);
  void begin(Transfer& transfer, std::uint32_t number, ExtentRef ref, unsigned space,
             Priority priority);
  bool is_own_job(const Job& job) const;
  Channel::Load load_of(const Transfer& transfer) const {
    return {io_bytes(transfer), transfer.writes(), transfer.priority};
  }
  std::string check_channels() const;
  std::string check_bounce() const;

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Bounce& bounce_;
  SlotTiers& slots_;
  Copies& copies_;
  Workers& workers_;
  const MoverOptions& options_;

  std::int64_t now_ = 0;
  std::size_t requests_ = 0;
  Deque<Record> records_;    // Stable addresses: workers hold jobs.
  Vector<Transfer*> heads_;  // The transfers of the records; null: free.
  Vector<std::uint32_t> free_;
  std::uint32_t live_ = 0;
  unsigned prefetches_ = 0;  // In progress.
  EndedList ended_;
  Vector<Next> next_;
  bool offered_ = false;  // Until end_offer().
  Job* given_ = nullptr;
  Deque<Job*> own_jobs_;
  Deque<std::uint32_t> drops_;    // Transfers with drop(), until take_drops().
  Vector<std::uint32_t> unmaps_;  // Transfers with a frame that the kernel kept in its window.
  Backoff unmap_backoff_;
};

template <typename T>
T& Carrier::create(ExtentRef ref, unsigned space, Priority priority) {
  const std::uint32_t number = new_record();
  T& transfer = records_[number].emplace<T>();
  transfer.kind = T::kKind;
  begin(transfer, number, ref, space, priority);
  return transfer;
}

}  // namespace tiermem

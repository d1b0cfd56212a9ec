// The journal: what the mover has done. Counters, a receipt for each transfer and each copy that
// was dropped, and the reason why copies leave. Nothing that the mover decides depends on it. The
// stepping thread only; never waits. Times are those of the steps: the journal reads no clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "mover/memories.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/transfer.hpp"
#include "observe/histogram.hpp"
#include "observe/receipts.hpp"
#include "residency/directory.hpp"

namespace tiermem {

class Journal {
 public:
  /// Keeps the last `kept` receipts.
  Journal(const Directory& directory, const Memories& memories, std::uint32_t kept)
      : directory_(directory), memories_(memories), receipts_(kept) {}

  void begin_step(std::int64_t now) {
    now_ = now;
    count(&Stats::steps);
  }
  /// The last step took `ns`.
  void note_step(std::int64_t ns) {
    step_ns_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)));
  }
  void count(std::uint64_t Stats::*counter, std::uint64_t amount = 1) {
    counters_.*counter += amount;
  }
  /// Counts a frame that has appeared in a window of the host.
  void count_mapped(Mechanism mechanism);

  /// A transfer has ended, or a request is complete.
  void note_activity() { ++activity_; }
  /// Changes with each note_activity().
  std::uint64_t activity() const { return activity_; }

  /// The reason for everything that begins to leave within the scope. Scopes nest.
  class ReasonScope {
   public:
    ReasonScope(Journal& journal, Reason reason) : journal_(journal), before_(journal.reason_) {
      journal.reason_ = reason;
    }
    ~ReasonScope() { journal_.reason_ = before_; }
    ReasonScope(const ReasonScope&) = delete;
    ReasonScope& operator=(const ReasonScope&) = delete;

   private:
    Journal& journal_;
    const Reason before_;
  };
  Reason reason() const { return reason_; }

  /// A slot tier has completed its part of the transfer, `bytes` if it worked.
  void note_io(Transfer& transfer, const SlotCompletion& completion, bool write,
               std::uint64_t bytes);
  /// `bytes` of the transfer went from the memory of a device to a slot past the host (`write`), or
  /// came from there.
  void note_direct(const Transfer& transfer, bool write, std::uint64_t bytes);
  /// `bytes` went to a slot tier, or came from there.
  void note_slot_bytes(const SlotTiers::Entry& tier, bool write, std::uint64_t bytes) {
    TierStats& total = slot_bytes_[tier.number];
    (write ? total.bytes_in : total.bytes_out) += bytes;
  }
  /// `bytes` came from a slot to the transfer's frame, or went from there to a slot.
  void note_promoted(const Transfer& transfer, std::uint64_t bytes);
  void note_demoted(const Transfer& transfer, std::uint64_t bytes);
  /// The transfer's job has copied between the host and a device, or between devices.
  void note_copies(Transfer& transfer);
  /// The transfer is about to end. Undone transfers, and spare buffers made ahead, get no receipt.
  /// A copy that leaves without a write gets its receipt from note_dropped().
  void note_end(const Transfer& transfer);
  /// A copy has left without a write, or after a write with a receipt of its own.
  void note_dropped(ExtentRef ref, const MemoryLedger& memory, std::uint64_t bytes,
                    std::int64_t begun_ns);

  /// Returns the newest receipt of the extent that `wanted` accepts, or null.
  template <typename Wanted>
  const Receipt* newest_of(ExtentRef ref, Wanted&& wanted) const {
    const Receipt ours = blank_receipt(ref);
    return receipts_.newest([&](const Receipt& receipt) {
      return receipt.buffer == ours.buffer && receipt.offset == ours.offset && wanted(receipt);
    });
  }
  /// Copies the totals, and up to `most` of the newest receipts.
  void copy_receipts(ReceiptsCopy& to, std::size_t most) const { receipts_.copy(to, most); }
  /// Sets `stats` to the counters; everything else in it is 0.
  void fill(Stats& stats) const {
    stats = counters_;
    stats.step_ns_p99 = step_ns_.percentile(0.99);
  }
  /// Only bytes_in and bytes_out: of a slot tier all; of a device those past the host; of a further
  /// memory of the host those from and to slots and other memories. Those of the first memory of
  /// the host are what all of its memories gave each other: the sums of the host complete them.
  const TierStats& bytes_of(const SlotTiers::Entry& tier) const { return slot_bytes_[tier.number]; }
  const TierStats& bytes_of(const MemoryLedger& memory) const {
    return memory_bytes_[memory.index];
  }

  /// Checks the invariants between two steps. Empty, or the breach.
  std::string check() const;

 private:
  Receipt blank_receipt(ExtentRef ref) const;
  /// Returns the counts of the memory that has the frame, or null for the host's first and devices.
  TierStats* counts_of(unsigned space, FrameId frame);
  /// The extent is in another memory of the host.
  void note_relocated(const Relocate& transfer);
  Place place_of(unsigned space, FrameId frame) const {
    return memories_.of(space, frame).tier->place();
  }

  const Directory directory_;
  const Memories& memories_;
  // Only bytes_in and bytes_out.
  std::array<TierStats, kFileTier + 1> slot_bytes_{};
  std::array<TierStats, kMaxSpaces * kMostMemories> memory_bytes_{};  // By memory.
  std::int64_t now_ = 0;
  std::uint64_t activity_ = 0;
  Reason reason_ = Reason::none;
  Stats counters_{};
  Receipts receipts_;
  Histogram step_ns_;
};

}  // namespace tiermem

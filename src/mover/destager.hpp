// Destages: the bytes of a slot are copied to a slot in a tier of higher rank, in the background.
// The extent has a replica after that, and its own slot can be given up at once when its tier is
// full (policy/slot_level.hpp says when). The bytes are checked on their way. The stepping thread
// only; never waits.
//
// No request waits for a destage. A request that wants the extent deserts it: the transfer gives up
// what it has when the step in progress has ended, and the extent is as it was.
#pragma once

#include <cstdint>

#include "mover/backoff.hpp"
#include "mover/carrier.hpp"
#include "mover/copies.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/mover_options.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/transfer.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Destager {
 public:
  Destager(Residency& residency, Memories& memories, Journal& journal, Carrier& carrier,
           Copies& copies, SlotTiers& slots, const MoverOptions& options)
      : directory_(residency),
        memories_(memories),
        journal_(journal),
        carrier_(carrier),
        copies_(copies),
        slots_(slots),
        options_(options) {}

  /// Returns whether the tier needs slots that are ready, and one more destage may start now.
  bool may_start(const SlotTiers::Entry& tier, std::int64_t now) const;
  /// Copies the extent, which is in its slot only, to the tier `to`. `frame`: a frame of the host
  /// with an address of its own. The transfer gives it back.
  void start(ExtentRef ref, FrameId frame, SlotTiers::Entry& to);
  /// There was no frame for one.
  void no_frame(std::int64_t now) { backoff_.wait(now + kRetryNs); }
  /// The extent is wanted. If it has a destage, it has none after this.
  void desert(ExtentRef ref);

  void job_done(Destage& transfer);
  void io_done(Destage& transfer, const SlotCompletion& completion);
  /// The tier has grown.
  void find_slot(Destage& transfer);
  /// The tier could not grow.
  void not_grown(Destage& transfer) { failed(transfer); }

  unsigned live() const { return live_; }

 private:
  static constexpr std::int64_t kRetryNs = 1'000'000;

  bool copy_records(Destage& transfer, const SlotCopy& copy) const;
  void read(Destage& transfer);
  void land(Destage& transfer);
  void write(Destage& transfer);
  void end_read(Destage& transfer);
  void written(Destage& transfer);
  void failed(Destage& transfer);
  void end(Destage& transfer);

  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Carrier& carrier_;
  Copies& copies_;
  SlotTiers& slots_;
  const MoverOptions& options_;
  Backoff backoff_{kRetryNs, 1000 * kRetryNs};
  unsigned live_ = 0;
};

}  // namespace tiermem

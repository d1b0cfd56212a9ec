// Relocations: an extent gets a frame of another memory of its space. Its address, its checksums,
// its slot and whether it is dirty stay as they are. A victim goes to a memory of higher rank
// (TransferEngine::sink()). An extent that is used climbs to one of lower rank, and one that
// prefers a memory of higher rank goes there (mover/climbs.cpp). The stepping thread only; never
// waits.
//
// The word is `outgoing` until the end, and views and touches wait for it, as they wait for an
// extent that leaves and comes back. A failure leaves the extent where it was.
#pragma once

#include "mover/carrier.hpp"
#include "mover/memories.hpp"
#include "mover/stuck.hpp"
#include "mover/transfer.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Relocator {
 public:
  Relocator(Residency& residency, Memories& memories, Carrier& carrier, Stuck& stuck)
      : directory_(residency), memories_(memories), carrier_(carrier), stuck_(stuck) {}

  /// Returns whether the extent can get another frame: it is whole, and only this space has it. A
  /// copy on a device would have to be given up first, and an extent in parts is in its slot. One
  /// that could not leave its window is not tried again: a slot takes it.
  bool can_start(ExtentRef ref, unsigned space) const;
  /// Begins to move the extent to the frame `to`. Returns false if it cannot move now: the frame
  /// stays the caller's.
  bool start(ExtentRef ref, unsigned space, FrameId to, Priority priority, bool climbs);
  void job_done(Relocate& transfer);

 private:
  void moved(Relocate& transfer);
  void failed(Relocate& transfer);

  const Directory directory_;
  Memories& memories_;
  Carrier& carrier_;
  Stuck& stuck_;
};

}  // namespace tiermem

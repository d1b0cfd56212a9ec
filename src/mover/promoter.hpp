// Promotes of whole extents: the bytes come into a frame from a slot, a file or another space.
// Stages: see mover/stages.hpp. The stepping thread only; never waits.
#pragma once

#include <cstdint>

#include "base/arena.hpp"
#include "mover/carrier.hpp"
#include "mover/copies.hpp"
#include "mover/memories.hpp"
#include "mover/parts.hpp"
#include "mover/request.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stock.hpp"
#include "mover/transfer.hpp"
#include "policy/route.hpp"
#include "policy/source.hpp"

namespace tiermem {

class Promoter {
 public:
  Promoter(Residency& residency, Memories& memories, Journal& journal, Stock& stock,
           Carrier& carrier, Copies& copies, const Parts& parts, Bounce& bounce, SlotTiers& slots,
           const MoverOptions& options);

  /// Brings the extent into the frame. `discards_for`: the request overwrites all of it. `shows`:
  /// it is wanted in its window on a device. The transfer may have ended when this returns.
  void start(ExtentRef ref, unsigned space, FrameId frame, Priority priority, Request* discards_for,
             bool shows);
  /// The promote that has just begun takes a device's victim to the host.
  void note_spill(ExtentRef ref);

  // ---- Events of a promote

  void job_done(Promote& transfer);
  void io_done(Promote& transfer, const SlotCompletion& completion);
  void went_direct(Promote& transfer);
  /// The transfer has its place in the staging, or goes on with its next stage.
  void go_on(Promote& transfer);
  void copy_begun(Promote& transfer, std::uint64_t ordinal);
  /// Makes copies again that had a source with a writer.
  void serve_recopies();
  /// Ends promotes that failed while streams had pins.
  void serve_abandoned();
  /// Some promotes wait for pins.
  bool waits_for_pins() const { return !recopies_.empty() || !abandoned_.empty(); }

  // ---- For requests

  bool lets_in(const Request& request, const Need& need);
  bool pin_incoming(Request& request, const Span& span);
  const Promote* parked_for(const Request& request, ExtentRef ref) const;
  void give_place(const Request& request, ExtentRef ref);
  void publish_parked(const Request& request, ExtentRef ref);
  void unpark(const Request& request, ExtentRef ref);

  /// The frame has come to its window from its home.
  void to_window(ExtentRef ref);

 private:
  // promoter.cpp
  void land(Promote& transfer);
  Route::Sums sums_to_check(Promote& transfer);
  void landed(Promote& transfer);
  void publish(Promote& transfer);
  void give_place(const Promote& transfer);
  void stock_ended(ExtentRef ref, bool came);
  void failed(Promote& transfer, Status status);
  void undo(Promote& transfer, const Status* error);
  void undone(Promote& transfer, Status error);
  void left_source(const Promote& transfer);
  MemoryLedger& memory_of_source(const Promote& transfer) const {
    return memories_.of(transfer.source, directory_.frame(transfer.source, transfer.ref));
  }
  // Null for a frame of the host that is not in its window, or will not be.
  std::byte* window_of(const Promote& transfer) const {
    return transfer.at_home ? nullptr : directory_.window_at(transfer.ref, transfer.space);
  }

  // sources.cpp: promotes from other spaces.
  Source choose_source(const Promote& transfer) const;
  Route::End source_end(const Promote& transfer) const;
  Route::Way choose_way(const Promote& transfer) const;
  bool has_home(ExtentRef ref, FrameId frame) const;
  bool takes_source_home(Promote& transfer);
  void source_taken_home(Promote& transfer);
  void await_writers(Promote& transfer);

  // arrivals.cpp: copies to devices that a stream waits for by itself.
  bool take_over(Promote& transfer);
  bool abandon(Promote& transfer, const Status* error);
  void give_back_source(Promote& transfer);

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Stock& stock_;
  Carrier& carrier_;
  Copies& copies_;
  const Parts& parts_;
  Bounce& bounce_;
  SlotTiers& slots_;
  const MoverOptions& options_;
  Vector<std::uint32_t> recopies_;   // With a source that is or was written.
  Vector<std::uint32_t> abandoned_;  // That failed and are still pinned by streams.
};

}  // namespace tiermem

// Extents in parts: some pages of a mapped extent are in its window, the others only in its slot.
// Which extents can be partial, how pages come, and how some are discarded. mover/demote_parts.cpp
// writes changed ones. The stepping thread only; never waits.
//
// The phase of such an extent is `none`, as callers cannot pin it; Extent::parts says what is
// there. Its slot has the other pages, so it is written page by page and never given up as a whole.
// Before a page is written it gets a checksum that no bytes have, and no transfer reads it from the
// slot while it is in the window. A file in place of the slot is never written: changed pages of a
// private one leave with all of the extent, to a slot.
#pragma once

#include <cstdint>

#include "mover/bounce.hpp"
#include "mover/carrier.hpp"
#include "mover/copies.hpp"
#include "mover/memories.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/transfer.hpp"
#include "policy/page_levels.hpp"
#include "policy/write_tracking.hpp"
#include "residency/directory.hpp"

namespace tiermem {

class Parts {
 public:
  Parts(const Directory& directory, Memories& memories, Journal& journal, Carrier& carrier,
        Copies& copies, Bounce& bounce, SlotTiers& slots, const MoverOptions& options)
      : directory_(directory),
        memories_(memories),
        journal_(journal),
        carrier_(carrier),
        copies_(copies),
        bounce_(bounce),
        slots_(slots),
        options_(options),
        part_size_(options.usual_part),
        levels_(options.least_level) {}

  // ---- Questions

  /// Buffers of this kind can have extents of which some pages are resident.
  bool takes_parts(const BufferRecord& record) const;
  bool takes_parts(ExtentRef ref) const { return takes_parts(directory_.record_of(ref)); }
  std::uint32_t checksum_block(const BufferRecord& record) const;
  std::uint32_t checksum_block(ExtentRef ref) const {
    return checksum_block(directory_.record_of(ref));
  }
  /// [any] The smallest read of this buffer's slots and files: a block that has a checksum.
  std::uint32_t read_unit(const BufferRecord& record) const;
  PageMask there(ExtentRef ref) const;
  /// Returns whether pages of an extent without any can come. Takes bounce areas, and a record of
  /// the checksums of a file.
  bool can_begin(ExtentRef ref);
  /// The pages that a demand read brings, chosen by how much of earlier ones was used.
  PartSize& size() { return part_size_; }
  /// Which arrivals are watched for writes.
  WriteTracking& write_tracking() { return write_tracking_; }
  /// The program has missed the page.
  void note_missed(ExtentRef ref, unsigned page);
  /// These pages of a partial extent have left.
  void note_left(ExtentRef ref, PageMask pages);
  /// The turn of a partial extent has come. Returns the pages that leave, by their levels. 0: all
  /// stay for this time.
  PageMask take_turn(ExtentRef ref);
  /// Returns the pages that would leave.
  PageMask leaving(ExtentRef ref) const;
  /// Some pages of the extent cannot leave without the others.
  void end_turns(ExtentRef ref) { PageLevels::end_turns(directory_.page_levels(ref)); }

  /// An extent is about to come: takes bounce areas before memory is full.
  void prepare_for(ExtentRef ref);

  // ---- Pages come

  void start(ExtentRef ref, unsigned space, FrameId frame, Priority priority, PageMask pages);
  void job_done(PromoteParts& transfer);
  void io_done(PromoteParts& transfer, const SlotCompletion& completion);
  /// The transfer has its bounce area.
  void read(PromoteParts& transfer);
  /// The thread that touched the pages has run the transfer's job.
  void done_by_toucher(PromoteParts& transfer);

  // ---- Pages are discarded

  void start_empty(ExtentRef ref, PageMask pages);
  void emptied(Empty& transfer);

 private:
  void land(PromoteParts& transfer);
  void publish(PromoteParts& transfer);
  void failed(PromoteParts& transfer, const Status& status);
  void set_time();

  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Carrier& carrier_;
  Copies& copies_;
  Bounce& bounce_;
  SlotTiers& slots_;
  const MoverOptions& options_;
  PartSize part_size_;
  PageLevels levels_;
  WriteTracking write_tracking_;
};

}  // namespace tiermem

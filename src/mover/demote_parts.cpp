// Demotes of partial extents: changed pages are written page by page to the slot, or the extent is
// put together for another slot. The stepping thread only; never waits.
#include <bit>
#include <utility>

#include "mover/demoter.hpp"
#include "mover/page_mask.hpp"

namespace tiermem {

// The hash of what is there is known. Changed pages are written run by run; unchanged ones between
// them come along.
void Demoter::write_changed(DemoteParts& transfer) {
  Extent& extent = directory_.at(transfer.ref);
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  transfer.to_write = transfer.sums->unlike(*extent.copy().sums) & transfer.pages;
  WriteTracking::note(extent.unwritten, transfer.to_write != 0);
  const SlotPages* const pages = extent.copy().pages;
  const bool lacks = pages != nullptr && (transfer.to_write & ~pages->mask()) != 0;
  // It has no place for them, a child of fork reads it as it is, its tier takes no writes now, or
  // it is a file.
  const bool elsewhere = lacks || transfer.to->has_files() ||
                         transfer.to->ledger.is_shared(extent.copy().stamp) ||
                         transfer.to != transfer.slot_tier;
  if (transfer.to_write == 0) {
    carrier_.set_range(transfer, 0, 0);
    written(transfer);
  } else if (elsewhere && carrier_.others_stay(transfer)) {
    leave_together(transfer);
  } else if (transfer.to->has_files()) {
    transfer.to_write = 0;
    write_elsewhere(transfer);
  } else if (elsewhere) {
    make_whole(transfer);
  } else {
    write_next(transfer);
  }
}

// Another slot needs all pages, and some of them are in the window: these are back there, and the
// extent leaves as a whole at its next turn.
void Demoter::leave_together(DemoteParts& transfer) {
  transfer.to_write = 0;
  parts_.end_turns(transfer.ref);
  keep(transfer);
  map_back(transfer);
}

void Demoter::write_next(DemoteParts& transfer) {
  const unsigned first = lowest(transfer.to_write);
  const auto neighbours = static_cast<unsigned>(std::countr_one(transfer.pages >> first));
  const PageMask reach = pages_of(neighbours * kSmallestExtent) << first;
  const PageMask some = transfer.to_write & reach;
  transfer.to_write &= ~some;
  copies_.drop_replica(transfer.ref);
  directory_.at(transfer.ref).copy().sums->doubt(some);
  carrier_.set_range(transfer, first * kSmallestExtent, count_from_lowest(some) * kSmallestExtent);
  advance(transfer, Stage::write);
  carrier_.queue_io(transfer);
}

// The slot has the only copy of other pages, and cannot be written: the whole extent goes to
// another one.
void Demoter::make_whole(DemoteParts& transfer) {
  transfer.whole_again = true;
  transfer.to_write = 0;
  advance(transfer, Stage::whole);
  transfer.job.home = transfer.job.data;
  if (carrier_.take_bounce(transfer, directory_.pages_in(transfer.ref))) {
    read_missing(transfer);
  }
}

void Demoter::read_missing(DemoteParts& transfer) {
  const PageMask missing = pages_of(directory_.bytes_of(transfer.ref)) & ~transfer.pages &
                           ~zero_pages(directory_.at(transfer.ref));
  advance(transfer, Stage::read);
  if (missing == 0) {
    carrier_.set_range(transfer, 0, 0);
    missing_came(transfer);
    return;
  }
  carrier_.set_range(transfer, lowest(missing) * kSmallestExtent,
                     count_from_lowest(missing) * kSmallestExtent);
  carrier_.queue_io(transfer);
}

void Demoter::missing_came(DemoteParts& transfer) {
  const JobStep spread = carrier_.spreads(transfer);
  advance(transfer, Stage::copy);
  transfer.job.sums = directory_.at(transfer.ref).copy().sums;
  const PageMask missing = pages_of(directory_.bytes_of(transfer.ref)) & ~transfer.pages;
  carrier_.submit(transfer, spread | Carrier::verifies(*transfer.job.sums, missing) | kMergePages);
}

// All of the extent is in its bounce area. Its checksums say which pages are zeros.
void Demoter::measured(DemoteParts& transfer) {
  Checksums& sums = *transfer.sums;
  const Checksums& before = *directory_.at(transfer.ref).copy().sums;
  for (PageMask read = pages_of(directory_.bytes_of(transfer.ref)) & ~transfer.pages; read != 0;
       read &= read - 1) {
    sums.blocks[lowest(read)] = before.blocks[lowest(read)];  // Some of a file are new.
  }
  const PageMask zero = zero_pages(directory_.at(transfer.ref)) & ~transfer.pages;
  transfer.slot_pages.reset(SlotPages::make(directory_.bytes_of(transfer.ref)));
  for (unsigned page = 0; page < sums.count; ++page) {
    if ((zero >> page & 1) != 0) {
      sums.blocks[page] = sums.of_zeros();
    } else if (transfer.slot_pages != nullptr && sums.blocks[page] != sums.of_zeros()) {
      transfer.slot_pages->add(page);
    }
  }
  if (transfer.slot_pages != nullptr && transfer.slot_pages->stored == 0) {
    transfer.slot_pages->add(0);  // A slot has a page at least.
  }
  if (transfer.slot_pages != nullptr && !transfer.slot_pages->saves()) {
    transfer.slot_pages.reset();
  }
  find_slot(transfer);
}

void Demoter::find_slot(DemoteParts& transfer) {
  advance(transfer, Stage::slot);
  transfer.slot_tier = transfer.to;
  const SlotId slot = new_slot(transfer);
  if (!slot.valid()) {
    return;
  }
  transfer.slot = slot;
  advance(transfer, Stage::write);
  carrier_.set_range(transfer, 0, directory_.bytes_of(transfer.ref));
  carrier_.queue_io(transfer);
}

// The other slot has all of the extent: it takes the place of the one before. Pages that were
// discarded are zeros in it.
void Demoter::whole_written(DemoteParts& transfer) {
  if (directory_.owns_slot(transfer.ref)) {
    copies_.give_up_slot(transfer.ref);
  }
  directory_.add_slot(transfer.ref, transfer.to->number, transfer.slot, transfer.to->ledger.stamp(),
                      std::move(transfer.slot_pages));
  directory_.at(transfer.ref).zeros = 0;
}

// A write of parts has failed, three times perhaps. The bytes are where they were.
void Demoter::not_written(DemoteParts& transfer, Status status) {
  slots_.note_error(*transfer.to, *status.info());
  if (transfer.whole_again) {
    transfer.to->ledger.free(transfer.slot);
    if (to_next_tier(transfer, status, false)) {
      find_slot(transfer);
    } else {
      failed(transfer, std::move(status));
    }
  } else if (transfer.attempts++ < 2) {
    journal_.count(&Stats::io_retries);
    carrier_.queue_io(transfer);
  } else if (carrier_.others_stay(transfer)) {
    leave_together(transfer);
  } else {
    transfer.avoid |= std::uint64_t{1} << (static_cast<unsigned>(status.info()->device) % 64);
    make_whole(transfer);
  }
}

}  // namespace tiermem

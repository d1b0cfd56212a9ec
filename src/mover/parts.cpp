// Extents in parts: some pages of a mapped extent are in its window, the others only in its slot.
// Which pages come, room for them, where they land, and how changed ones are written. The stepping
// thread only; never waits.
//
// The phase of such an extent is `none`, as callers cannot pin it; Extent::parts says what is
// there. Its slot has the other pages, so it is written page by page and never given up as a whole.
// Before a page is written it gets a checksum that no bytes have, and no transfer reads it from the
// slot while it is in the window.
#include <bit>
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "mover/page_mask.hpp"
#include "mover/transfer_engine.hpp"

namespace tiermem {

bool TransferEngine::takes_parts(const BufferRecord& record) const {
  const std::uint32_t flags = record.flags.load(std::memory_order_relaxed);
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  return (flags & kMapped) != 0 && memories_.size() == 1 && block_ != nullptr &&
         options_.checksums && (flags & kNoChecksum) == 0 &&
         !record.read_only.load(std::memory_order_relaxed) && extent <= bounce_.area_bytes() &&
         memories_[kHost].tier->takes_parts(extent);
}

// By page where extents may be in parts: each is checked when it comes, and written when changed.
// And where pieces of extents are read (docs/decisions/gather.md).
std::uint32_t TransferEngine::checksum_block(const BufferRecord& record) const {
  const bool pages =
      takes_parts(record) || (record.flags.load(std::memory_order_relaxed) & kInPieces) != 0;
  return pages ? static_cast<std::uint32_t>(kSmallestExtent) : options_.checksum_block_bytes;
}

// ---- Which pages, and room for them

// Returns the pages that are present when the extent's transfer has ended.
PageMask TransferEngine::parts_there(ExtentRef ref) const {
  const bool leaves = directory_.word(kHost, ref).load().phase() == Phase::outgoing;
  return leaves && !comes_back(ref) ? 0 : directory_.at(ref).parts;
}

bool TransferEngine::can_begin_parts(ExtentRef ref) {
  if (!directory_.in_slot(ref) || !takes_parts(ref) ||
      directory_.word(kHost, ref).load().phase() != Phase::none) {
    return false;
  }
  bounce_.prepare(budget_changes_);
  return bounce_.any_ready();
}

void TransferEngine::give_parts(FrameId frame, unsigned space, PageMask pages) {
  memories_[space].tier->return_frame(frame);
  memories_[space].returned += bytes_of_pages(pages);
}

// ---- Promote

void TransferEngine::read_parts(Transfer& transfer) {
  transfer.from = lowest(transfer.pages) * kSmallestExtent;
  transfer.length = count_from_lowest(transfer.pages) * kSmallestExtent;
  if (take_bounce(transfer, count_from_lowest(transfer.pages))) {
    read_parts_into_bounce(transfer);
  }
}

void TransferEngine::read_parts_into_bounce(Transfer& transfer) {
  const PageMask read = transfer.pages & ~zero_pages(directory_.at(transfer.ref));
  if (read == 0) {
    set_range(transfer, 0, 0);
    land_parts(transfer);
    return;
  }
  // Pages of zeros at the ends are not read.
  set_range(transfer, lowest(read) * kSmallestExtent, count_from_lowest(read) * kSmallestExtent);
  transfer.stage = Transfer::Stage::read;
  queue_io(transfer);
}

void TransferEngine::land_parts(Transfer& transfer) {
  const Extent& extent = directory_.at(transfer.ref);
  transfer.stage = Transfer::Stage::land;
  transfer.job.sums = extent.sums;
  // The slot may have other bytes for pages of zeros.
  transfer.job.watched = !extent.writes && (extent.zeros & transfer.pages) == 0 &&
                         watching_.watches(transfer.ref, extent.unwritten);
  submit_job(transfer, spreads(transfer) | kVerify | kInsert);
}

void TransferEngine::publish_parts(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  const bool first = extent.parts == 0;
  if (first) {
    bounce_.partial_begun();
  }
  extent.parts |= transfer.pages;
  const std::uint64_t held = bytes_of_pages(extent.parts);
  directory_.frame(space, ref) = transfer.frame;
  journal_.count(transfer.prefetch ? &Stats::prefetched : &Stats::promoted,
                 bytes_of_pages(transfer.pages & ~zero_pages(extent)));
  extent.zeros &= ~transfer.pages;
  journal_.count(&Stats::moved_by_copy);
  word.set_dirty();
  if (extent.parts == pages_of(directory_.bytes_of(ref))) {
    extent.parts = 0;
    bounce_.partial_ended();
    directory_.address(ref).store(directory_.window_at(ref, space), std::memory_order_relaxed);
    word.set_phase(Phase::exclusive);
  } else {
    word.set_phase(Phase::none);
  }
  if (first) {
    (void)word.take_referenced();
    recency_for(space, ref).inserted(ref, held);
  } else {
    recency_for(space, ref).grown(ref, held);
  }
  transfer.outcome = Transfer::Outcome::moved;
  end_transfer(transfer);
  extent_changed(ref, space);
}

// The pages do not come. Those that are there stay.
void TransferEngine::undo_parts(Transfer& transfer, const Status* error) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  if (transfer.topping_up) {
    memories_[space].tier->discharge_parts(transfer.frame,
                                           static_cast<unsigned>(std::popcount(transfer.pages)));
  } else {
    give_parts(transfer.frame, space, transfer.pages);
  }
  directory_.word(space, ref).set_phase(Phase::none);
  end_transfer(transfer);
  extent_changed(ref, space, error != nullptr ? error->clone() : Status(), Ended::Failed::to_read);
}

// ---- Demote

// The hash of what is there is known. Changed pages are written run by run; unchanged ones between
// them come along.
void TransferEngine::write_changed_parts(Transfer& transfer) {
  Extent& extent = directory_.at(transfer.ref);
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  transfer.to_write = transfer.sums->unlike(*extent.sums) & transfer.pages;
  Watching::note(extent.unwritten, transfer.to_write != 0);
  const bool lacks =
      extent.slot_pages != nullptr && (transfer.to_write & ~extent.slot_pages->mask()) != 0;
  if (transfer.to_write == 0) {
    set_range(transfer, 0, 0);
    written(transfer);
  } else if (lacks || block_slots_.is_shared(extent.slot_stamp)) {
    make_whole(transfer);  // It has no place for them, or a child of fork reads it as it is.
  } else {
    write_next_parts(transfer);
  }
}

void TransferEngine::write_next_parts(Transfer& transfer) {
  const unsigned first = lowest(transfer.to_write);
  const auto neighbours = static_cast<unsigned>(std::countr_one(transfer.pages >> first));
  const PageMask reach = pages_of(neighbours * kSmallestExtent) << first;
  const PageMask some = transfer.to_write & reach;
  transfer.to_write &= ~some;
  directory_.at(transfer.ref).sums->doubt(some);
  set_range(transfer, first * kSmallestExtent, count_from_lowest(some) * kSmallestExtent);
  transfer.stage = Transfer::Stage::write;
  queue_io(transfer);
}

// The slot has the only copy of other pages, and cannot be written: the whole extent goes to
// another one.
void TransferEngine::make_whole(Transfer& transfer) {
  transfer.whole_again = true;
  transfer.to_write = 0;
  transfer.stage = Transfer::Stage::staging;
  transfer.job.home = transfer.job.data;
  if (take_bounce(transfer, directory_.pages_in(transfer.ref))) {
    read_missing(transfer);
  }
}

void TransferEngine::read_missing(Transfer& transfer) {
  const PageMask missing = pages_of(directory_.bytes_of(transfer.ref)) & ~transfer.pages &
                           ~zero_pages(directory_.at(transfer.ref));
  transfer.stage = Transfer::Stage::read;
  if (missing == 0) {
    set_range(transfer, 0, 0);
    missing_came(transfer);
    return;
  }
  set_range(transfer, lowest(missing) * kSmallestExtent,
            count_from_lowest(missing) * kSmallestExtent);
  queue_io(transfer);
}

void TransferEngine::missing_came(Transfer& transfer) {
  const JobStep spread = spreads(transfer);
  transfer.stage = Transfer::Stage::copy;
  transfer.job.sums = directory_.at(transfer.ref).sums;
  submit_job(transfer, spread | kVerify | kGather);
}

// All of the extent is in its bounce area. Its checksums say which pages are zeros.
void TransferEngine::whole_measured(Transfer& transfer) {
  Checksums& sums = *transfer.sums;
  const PageMask zero = zero_pages(directory_.at(transfer.ref)) & ~transfer.pages;
  SlotPages::destroy(transfer.slot_pages);
  transfer.slot_pages = SlotPages::make(directory_.bytes_of(transfer.ref));
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
    SlotPages::destroy(std::exchange(transfer.slot_pages, nullptr));
  }
  find_slot_for_whole(transfer);
}

void TransferEngine::find_slot_for_whole(Transfer& transfer) {
  transfer.stage = Transfer::Stage::slot;
  const SlotId slot = new_slot(transfer);
  if (!slot.valid()) {
    return;
  }
  transfer.slot = slot;
  transfer.stage = Transfer::Stage::write;
  set_range(transfer, 0, directory_.bytes_of(transfer.ref));
  queue_io(transfer);
}

// The other slot has all of the extent: it takes the place of the one before. Pages that were
// discarded are zeros in it.
void TransferEngine::whole_written(Transfer& transfer) {
  Extent& extent = directory_.at(transfer.ref);
  give_up_slot(extent);
  extent.slot = transfer.slot;
  extent.slot_stamp = block_slots_.stamp();
  extent.has_slot = true;
  extent.slot_pages = std::exchange(transfer.slot_pages, nullptr);
  extent.zeros = 0;
}

// A write of parts has failed, three times perhaps. The bytes are where they were.
void TransferEngine::parts_not_written(Transfer& transfer, Status status) {
  block_slots_.note_error(*status.info());
  if (transfer.whole_again) {
    block_slots_.free(transfer.slot);
    demote_failed(transfer, std::move(status));
  } else if (transfer.attempts++ < 2) {
    journal_.count(&Stats::io_retries);
    queue_io(transfer);
  } else {
    transfer.avoid |= std::uint64_t{1} << (static_cast<unsigned>(status.info()->device) % 64);
    make_whole(transfer);
  }
}

// ---- Discards of some pages

void TransferEngine::start_empty(ExtentRef ref, PageMask pages) {
  directory_.at(ref).parts &= ~pages;
  Transfer& transfer = new_transfer(Transfer::Kind::empty, ref, kHost, Priority::demand);
  transfer.frame = directory_.frame(kHost, ref);
  transfer.pages = pages;
  transfer.stage = Transfer::Stage::unmap;
  submit_job(transfer, kEmpty);
}

void TransferEngine::emptied(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  Extent& extent = directory_.at(ref);
  if (transfer.job.status.ok()) {
    Memory& memory = memories_[kHost];
    memory.tier->discharge_parts(transfer.frame,
                                 static_cast<unsigned>(std::popcount(transfer.pages)));
    memory.returned += bytes_of_pages(transfer.pages);
    memory.recency.grown(ref, directory_.resident_bytes(ref));
  } else {
    extent.parts |= transfer.pages;
    extent.zeros &= ~transfer.pages;
  }
  end_transfer(transfer);
  extent_changed(ref, kHost);
}

// ---- Bounce areas

// Takes a place of `pages` pages for the transfer. Returns false if it waits for one.
bool TransferEngine::take_bounce(Transfer& transfer, unsigned pages) {
  const Bounce::Place place = bounce_.take(transfer.job.transfer, pages);
  if (place) {
    set_bounce(transfer, place);
  }
  return static_cast<bool>(place);
}

void TransferEngine::set_bounce(Transfer& transfer, const Bounce::Place& place) {
  transfer.bounce = place;
  transfer.job.data = bounce_.data(place);
  if (!transfer.whole_again) {
    transfer.job.data -= transfer.from;
  }
}

void TransferEngine::give_bounce(Transfer& transfer) {
  if (transfer.bounce) {
    bounce_.give(std::exchange(transfer.bounce, {}));
  }
}

// Transfers that waited for a place of the bounce memory go on. Returns whether any did.
bool TransferEngine::grant_places() {
  bool any = false;
  while (const auto grant = bounce_.grant()) {
    any = true;
    Transfer& transfer = transfers_[grant->transfer];
    set_bounce(transfer, grant->place);
    transfer.whole_again ? read_missing(transfer) : read_parts_into_bounce(transfer);
  }
  // One by one: a transfer that goes on may give its place back at once.
  while (const auto grant = bounce_.grant_staging()) {
    any = true;
    Transfer& transfer = transfers_[grant->transfer];
    transfer.staging = grant->place;
    transfer.kind == Transfer::Kind::demote ? seal(transfer) : continue_promote(transfer);
  }
  return any;
}

}  // namespace tiermem

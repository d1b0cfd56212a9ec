#include "mover/parts.hpp"

#include <algorithm>
#include <bit>

#include "mover/page_mask.hpp"

namespace tiermem {

bool Parts::takes_parts(const BufferRecord& record) const {
  const std::uint32_t flags = record.flags.load(std::memory_order_relaxed);
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  const bool read_only = record.read_only.load(std::memory_order_relaxed);
  return (flags & kMapped) != 0 && memories_.spaces() == 1 &&
         (read_only || slots_.any_writable()) && options_.checksums && (flags & kNoChecksum) == 0 &&
         extent <= bounce_.area_bytes() && memories_.space(kHost).takes_parts(extent, read_only);
}

// By page where extents may be in parts: each is checked when it comes, and written when changed.
// And where pieces of extents are read (docs/decisions/gather.md).
std::uint32_t Parts::checksum_block(const BufferRecord& record) const {
  const bool pages =
      takes_parts(record) || (record.flags.load(std::memory_order_relaxed) & kInPieces) != 0;
  return pages ? static_cast<std::uint32_t>(kSmallestExtent) : options_.checksum_block_bytes;
}

std::uint32_t Parts::read_unit(const BufferRecord& record) const {
  const bool adopted = record.read_only.load(std::memory_order_relaxed) ||
                       (record.flags.load(std::memory_order_relaxed) & kPrivate) != 0;
  const bool checked =
      options_.checksums &&
      (adopted || (record.flags.load(std::memory_order_relaxed) & kNoChecksum) == 0);
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  const std::uint64_t block = checked ? checksum_block(record) : kSmallestExtent;
  return static_cast<std::uint32_t>(std::min(block, extent));
}

// Returns the pages that are present when the extent's transfer has ended.
PageMask Parts::there(ExtentRef ref) const {
  const PageMask parts = directory_.at(ref).parts;
  const Transfer* const transfer = carrier_.transfer_of(ref);
  const bool leaves = directory_.word(kHost, ref).load().phase() == Phase::outgoing;
  if (!leaves || carrier_.comes_back(ref)) {
    return parts;
  }
  return transfer != nullptr && transfer->pages != 0 ? parts & ~transfer->pages : 0;
}

// Extents in parts are in the first memory.
void Parts::set_time() {
  const Recency& order = memories_.first(kHost).recency;
  levels_.set_time(order.clock(), order.pool_units());
}

void Parts::note_missed(ExtentRef ref, unsigned page) {
  // Otherwise none of its pages has left.
  if (directory_.has_page_levels(ref) || options_.least_level != 0) {
    set_time();
    levels_.missed(directory_.page_levels(ref), page);
  }
}

void Parts::note_left(ExtentRef ref, PageMask pages) {
  set_time();
  levels_.left(directory_.page_levels(ref), pages);
}

PageMask Parts::take_turn(ExtentRef ref) {
  const PageMask parts = directory_.at(ref).parts;
  return directory_.has_page_levels(ref) ? PageLevels::take_turn(directory_.page_levels(ref), parts)
                                         : parts;
}

PageMask Parts::leaving(ExtentRef ref) const {
  const PageMask parts = directory_.at(ref).parts;
  return directory_.has_page_levels(ref)
             ? PageLevels::without_turns(directory_.page_levels(ref), parts)
             : parts;
}

bool Parts::can_begin(ExtentRef ref) {
  if (!directory_.in_slot_or_file(ref) || !takes_parts(ref) ||
      directory_.word(kHost, ref).load().phase() != Phase::none) {
    return false;
  }
  if (!directory_.owns_slot(ref)) {
    const Checksums* const sums = directory_.checksums_of_file(ref, checksum_block(ref));
    if (sums == nullptr || sums->block_bytes != kSmallestExtent) {
      return false;
    }
  }
  bounce_.prepare();
  return bounce_.any_ready();
}

void Parts::prepare_for(ExtentRef ref) {
  if (!bounce_.has_areas() && takes_parts(ref)) {
    bounce_.prepare();
  }
}

void Parts::start(ExtentRef ref, unsigned space, FrameId frame, Priority priority, PageMask pages) {
  PromoteParts& transfer = carrier_.create<PromoteParts>(ref, space, priority);
  const Extent& extent = directory_.at(ref);
  transfer.frame = frame;
  transfer.pages = pages;
  transfer.topping_up = extent.parts != 0;
  transfer.reading = true;
  transfer.slot_tier = &slots_.of(extent.copy());
  transfer.slot = extent.copy().slot;
  directory_.word(space, ref).set_phase(Phase::incoming);
  transfer.from = lowest(transfer.pages) * kSmallestExtent;
  transfer.length = count_from_lowest(transfer.pages) * kSmallestExtent;
  if (carrier_.take_bounce(transfer, count_from_lowest(transfer.pages))) {
    read(transfer);
  }
}

void Parts::read(PromoteParts& transfer) {
  const PageMask read = transfer.pages & ~zero_pages(directory_.at(transfer.ref));
  if (read == 0) {
    carrier_.set_range(transfer, 0, 0);
    (void)carrier_.gives_to_toucher(transfer, false);
    land(transfer);
    return;
  }
  // Pages of zeros at the ends are not read.
  carrier_.set_range(transfer, lowest(read) * kSmallestExtent,
                     count_from_lowest(read) * kSmallestExtent);
  advance(transfer, Stage::read);
  if (carrier_.gives_to_toucher(transfer, true)) {
    land(transfer);
  } else {
    carrier_.queue_io(transfer);
  }
}

void Parts::land(PromoteParts& transfer) {
  const Extent& extent = directory_.at(transfer.ref);
  advance(transfer, Stage::land);
  transfer.job.sums = extent.copy().sums;
  // The slot may have other bytes for pages of zeros.
  transfer.job.watched =
      !directory_.mapped(transfer.ref) || (!extent.writes && (extent.zeros & transfer.pages) == 0 &&
                                           write_tracking_.watches(transfer.ref, extent.unwritten));
  const bool reads = transfer.by_toucher && transfer.job.io.length != 0;
  carrier_.submit(transfer, (reads ? kReadSlot : 0) | carrier_.spreads(transfer) |
                                Carrier::verifies(*transfer.job.sums, transfer.pages) | kInsert);
}

// If the thread could not read the pages, the slot tier reads them, with the usual answers to
// errors.
void Parts::done_by_toucher(PromoteParts& transfer) {
  carrier_.note_done_by_toucher(transfer);
  if (transfer.job.read.code == Code::ok) {
    job_done(transfer);
    return;
  }
  journal_.count(&Stats::io_retries);
  advance(transfer, Stage::read);
  carrier_.queue_io(transfer);
}

void Parts::publish(PromoteParts& transfer) {
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
  journal_.note_promoted(transfer, bytes_of_pages(transfer.pages & ~zero_pages(extent)));
  extent.zeros &= ~transfer.pages;
  journal_.count(&Stats::moved_by_copy);
  directory_.mapped(ref) ? word.set_dirty() : word.clear_dirty();
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
    Copies::recency_for(carrier_.memory_of(transfer), ref).inserted(ref, held);
  } else {
    Copies::recency_for(carrier_.memory_of(transfer), ref).grown(ref, held);
  }
  transfer.outcome = Transfer::Outcome::moved;
  carrier_.end(transfer);
  carrier_.extent_changed(ref, space);
}

void Parts::job_done(PromoteParts& transfer) {
  if (transfer.job.checksum_bad) {
    Status why;
    if (!carrier_.reads_again(transfer, why)) {
      failed(transfer, why);
    }
  } else if (!transfer.job.status.ok()) {
    failed(transfer, transfer.job.status.clone());
  } else {
    publish(transfer);
  }
}

void Parts::io_done(PromoteParts& transfer, const SlotCompletion& completion) {
  Status why;
  if (completion.code == Code::ok) {
    land(transfer);
  } else if (!carrier_.reads_again(transfer, completion, why)) {
    failed(transfer, why);
  }
}

// The pages do not come. Those that are there stay.
void Parts::failed(PromoteParts& transfer, const Status& status) {
  journal_.count(&Stats::io_errors);
  transfer.outcome = Transfer::Outcome::failed;
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  if (transfer.topping_up) {
    carrier_.memory_of(transfer).tier->discharge_parts(
        transfer.frame, static_cast<unsigned>(std::popcount(transfer.pages)));
  } else {
    copies_.give_parts(transfer.frame, space, transfer.pages);
  }
  directory_.word(space, ref).set_phase(Phase::none);
  carrier_.end(transfer);
  carrier_.extent_changed(ref, space, status.clone(), Ended::Failed::to_read);
}

void Parts::start_empty(ExtentRef ref, PageMask pages) {
  directory_.at(ref).parts &= ~pages;
  Empty& transfer = carrier_.create<Empty>(ref, kHost, Priority::demand);
  transfer.frame = directory_.frame(kHost, ref);
  transfer.pages = pages;
  advance(transfer, Stage::unmap);
  carrier_.submit(transfer, kEmpty);
}

void Parts::emptied(Empty& transfer) {
  const ExtentRef ref = transfer.ref;
  Extent& extent = directory_.at(ref);
  if (transfer.job.status.ok()) {
    MemoryLedger& memory = carrier_.memory_of(transfer);
    memory.tier->discharge_parts(transfer.frame,
                                 static_cast<unsigned>(std::popcount(transfer.pages)));
    memory.returned += bytes_of_pages(transfer.pages);
    memory.recency.grown(ref, directory_.resident_bytes(ref));
  } else {
    extent.parts |= transfer.pages;
    extent.zeros &= ~transfer.pages;
  }
  carrier_.end(transfer);
  carrier_.extent_changed(ref, kHost);
}

}  // namespace tiermem

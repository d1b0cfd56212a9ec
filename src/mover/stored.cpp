// The content of slots. A page of zeros needs no room: a slot may have some pages of its extent,
// one behind the other (mover/slot_pages.hpp), and an extent of zeros needs no slot. If the tier is
// full, slots of resident bytes give way. The stepping thread only; never waits.
#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "mover/transfer_engine.hpp"

namespace tiermem {

// A new slot for it may need less room than the extent. Not for a private copy of a file: an extent
// of zeros would lose its slot, and read as the file again.
bool TransferEngine::measures(const Transfer& transfer) const {
  return transfer.pages == 0 && directory_.bytes_of(transfer.ref) > kSmallestExtent &&
         directory_.record_of(transfer.ref).file == 0 &&
         memories_[transfer.space].tier->host_addressable();
}

// Finds out which pages a new slot must have. An extent keeps a slot that can be written in place.
void TransferEngine::measure(Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  Extent& extent = directory_.at(ref);
  const bool unknown = extent.slot_stale || extent.sums == nullptr;
  if (extent.has_slot && unknown &&
      (extent.slot_pages != nullptr || block_slots_.is_shared(extent.slot_stamp))) {
    give_up_slot(extent);  // The changed pages are not known: all of it goes to another slot.
  }
  if (!extent.has_slot && measures(transfer)) {
    AddressableTier& tier = *memories_[transfer.space].tier;
    std::byte* const data = transfer.withdrawn
                                ? tier.landing(transfer.frame, nullptr)
                                : directory_.address(ref).load(std::memory_order_relaxed);
    if (!SlotPages::look_full(data, directory_.bytes_of(ref))) {
      SlotPages::destroy(transfer.slot_pages);
      transfer.slot_pages = SlotPages::make(directory_.bytes_of(ref));
    }
    if (transfer.slot_pages != nullptr) {
      (void)start_copy(transfer, transfer.space);
      transfer.job.data = data;
      transfer.job.slot_pages = transfer.slot_pages;
      transfer.stage = Transfer::Stage::measure;
      submit_job(transfer, kMeasure);
      return;
    }
  }
  find_slot(transfer);
}

void TransferEngine::measured(Transfer& transfer) {
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  if (transfer.slot_pages->stored == 0) {
    set_range(transfer, 0, 0);
    written(transfer);  // Zeros: as if it had never been written.
    return;
  }
  if (!transfer.slot_pages->saves()) {
    SlotPages::destroy(std::exchange(transfer.slot_pages, nullptr));
  }
  find_slot(transfer);
}

// Returns the pages of the slot that the transfer reads or writes. Null: all of them.
const SlotPages* TransferEngine::slot_pages_of(const Transfer& transfer) const {
  if (transfer.slot_tier != block_ || transfer.kind == Transfer::Kind::gather) {
    return nullptr;
  }
  return transfer.whole_again && writes(transfer) ? transfer.slot_pages
                                                  : directory_.at(transfer.ref).slot_pages;
}

// Returns the charge of the extent's slot.
std::uint64_t TransferEngine::slot_bytes_of(ExtentRef ref) const {
  const SlotPages* const pages = directory_.at(ref).slot_pages;
  return pages != nullptr ? pages->slot_bytes() : directory_.bytes_of(ref);
}

// Returns the charge of a new slot for the transfer.
std::uint64_t TransferEngine::slot_bytes_of(const Transfer& transfer) const {
  return transfer.slot_pages != nullptr ? transfer.slot_pages->slot_bytes()
                                        : directory_.bytes_of(transfer.ref);
}

// Returns the pages of a partial extent that are zeros unless they are in memory.
PageMask TransferEngine::zero_pages(const Extent& extent) const {
  return extent.zeros | (extent.slot_pages != nullptr ? ~extent.slot_pages->mask() : PageMask{0});
}

// The bytes of the extent that the transfer reads or writes next.
void TransferEngine::set_range(Transfer& transfer, std::uint64_t from, std::uint64_t length) {
  transfer.from = from;
  transfer.length = length;
  transfer.stored = 0;
  const SlotPages* const pages = slot_pages_of(transfer);
  if (pages != nullptr && length != 0) {
    const auto first = static_cast<unsigned>(from / pages->page_bytes);
    const auto last = static_cast<unsigned>((from + length) / pages->page_bytes);
    transfer.stored = std::uint64_t{pages->before(last) - pages->before(first)} * pages->page_bytes;
    assert(transfer.stored != 0);
  }
}

// Pages from a slot that lacks some lie one behind the other. Returns the step that brings them to
// their places.
JobStep TransferEngine::spreads(Transfer& transfer) {
  if (transfer.stored == 0) {
    return 0;
  }
  Job& job = transfer.job;
  job.slot_pages = directory_.at(transfer.ref).slot_pages;
  job.spread_first = static_cast<std::uint32_t>(transfer.from / job.slot_pages->page_bytes);
  job.spread_last =
      static_cast<std::uint32_t>((transfer.from + transfer.length) / job.slot_pages->page_bytes);
  return kSpread;
}

// To or from a slot that lacks pages. A read is one; a write is one for each run of pages, and the
// tier puts those together that are neighbours in the slot.
void TransferEngine::send_stored(Transfer& transfer, const SlotPages& pages) {
  const std::uint64_t page = pages.page_bytes;
  const auto first = static_cast<unsigned>(transfer.from / page);
  const auto last = static_cast<unsigned>((transfer.from + transfer.length) / page);
  if (!writes(transfer)) {
    transfer.slot_tier->submit({.cookie = transfer.job.transfer,
                                .slot = transfer.slot,
                                .data = transfer.job.data + transfer.from,
                                .length = transfer.stored,
                                .offset = pages.before(first) * page});
    return;
  }
  transfer.ended = {};
  transfer.open = 0;
  for (unsigned begin = pages.next(first, true); begin < last;) {
    const unsigned end = std::min(pages.next(begin, false), last);
    ++transfer.open;
    transfer.slot_tier->submit(
        {.cookie = std::uint64_t{transfer.open} << 32 | transfer.job.transfer,
         .slot = transfer.slot,
         .write = true,
         .data = transfer.job.data + begin * page,
         .length = (end - begin) * page,
         .offset = pages.before(begin) * page});
    begin = pages.next(end, true);
  }
}

// A run of such a write has ended. Returns whether all have; `all` has their sums then, and the
// first of several errors.
bool TransferEngine::run_ended(const SlotCompletion& run, SlotCompletion& all) {
  Transfer& transfer = transfers_[static_cast<std::uint32_t>(run.cookie)];
  SlotCompletion& sum = transfer.ended;
  const std::uint32_t requests = sum.requests + run.requests;
  const std::uint32_t retries = sum.retries + run.retries;
  const bool buffered = sum.buffered || run.buffered;
  if (sum.code == Code::ok) {
    sum = run;
  }
  sum.cookie = transfer.job.transfer;
  sum.requests = requests;
  sum.retries = retries;
  sum.buffered = buffered;
  all = sum;
  return --transfer.open == 0;
}

// Its slot has nothing that the host's memory does not have, and can be given to another extent.
// Bytes that can be made again keep theirs: without it they would be dropped.
bool TransferEngine::gives_way(ExtentRef ref) const {
  const Extent& extent = directory_.at(ref);
  return extent.has_slot && extent.transfer == 0 && extent.parts == 0 && !extent.charged &&
         !block_slots_.is_shared(extent.slot_stamp) && !directory_.droppable(ref) &&
         directory_.readable(ref, kHost);
}

// It can be written down without another slot.
bool TransferEngine::has_own_slot(ExtentRef ref) const {
  return directory_.in_slot(ref) && !block_slots_.is_shared(directory_.at(ref).slot_stamp);
}

// The tier is full: a slot of bytes that are in memory goes. These are written again when they
// leave. False: there is none.
bool TransferEngine::next_slot_gives_way() {
  if (!block_slots_.looks_for_slots(now_)) {
    return false;
  }
  const ExtentRef extents = residency_.buffers.used_extents();
  for (ExtentRef looked = 0; looked < extents; ++looked) {
    const ExtentRef ref = block_slots_.next_to_give_way(extents);
    if (!gives_way(ref)) {
      continue;
    }
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      if (directory_.readable(ref, space)) {
        directory_.word(space, ref).set_dirty();  // Before it is so.
      }
    }
    drop_slot(ref);
    return true;
  }
  block_slots_.none_gives_way(now_, extents);
  return false;
}

}  // namespace tiermem

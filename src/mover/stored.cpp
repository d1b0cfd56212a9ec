// The content of slots. A page of zeros needs no room: a slot may have some pages of its extent,
// one behind the other (residency/slot_pages.hpp), and an extent of zeros needs no slot. The
// stepping thread only; never waits.
#include <algorithm>

#include "mover/demoter.hpp"

namespace tiermem {

// A new slot for it may need less room than the extent. Not for a private copy of a file: an extent
// of zeros would lose its slot, and read as the file again.
bool Demoter::measures(const Demote& transfer) const {
  return transfer.pages == 0 && directory_.bytes_of(transfer.ref) > kSmallestExtent &&
         !directory_.record_of(transfer.ref).adopted() &&
         memories_.space(transfer.space).host_addressable();
}

// Finds out which pages a new slot must have. An extent keeps a slot that can be written in place,
// in the tier that takes the bytes.
void Demoter::measure(Demote& transfer) {
  const ExtentRef ref = transfer.ref;
  const SlotCopy& copy = directory_.at(ref).copy();
  const bool stays = copy.tier == transfer.to->number || transfer.pages != 0;
  if (copy.owned() &&
      (!stays || (!directory_.in_slot(ref) &&
                  (copy.pages != nullptr || transfer.to->ledger.is_shared(copy.stamp))))) {
    copies_.give_up_slot(ref);  // All of it goes to another slot.
  }
  if (!copy.owned() && measures(transfer)) {
    Memory& tier = *carrier_.memory_of(transfer).tier;
    std::byte* const data = transfer.withdrawn
                                ? tier.space().bytes_at(transfer.frame, nullptr)
                                : directory_.address(ref).load(std::memory_order_relaxed);
    if (!SlotPages::look_full(data, directory_.bytes_of(ref))) {
      transfer.slot_pages.reset(SlotPages::make(directory_.bytes_of(ref)));
    }
    if (transfer.slot_pages != nullptr) {
      (void)carrier_.start_copy(transfer, transfer.space);
      transfer.job.data = data;
      transfer.job.slot_pages = transfer.slot_pages.get();
      advance(transfer, Stage::measure);
      carrier_.submit(transfer, kMeasure);
      return;
    }
  }
  find_slot(transfer);
}

void Demoter::measured(Demote& transfer) {
  if (transfer.recalled) {
    map_back(transfer);
    return;
  }
  if (transfer.slot_pages->stored == 0) {
    carrier_.set_range(transfer, 0, 0);
    written(transfer);  // Zeros: as if it had never been written.
    return;
  }
  if (!transfer.slot_pages->saves()) {
    transfer.slot_pages.reset();
  }
  find_slot(transfer);
}

std::uint64_t Demoter::slot_bytes_of(const Demote& transfer) const {
  return transfer.slot_pages != nullptr ? transfer.slot_pages->slot_bytes()
                                        : directory_.bytes_of(transfer.ref);
}

void Demoter::send(Demote& transfer, unsigned depth) {
  if (transfer.writes()) {
    copies_.drop_replica(transfer.ref);
  }
  const SlotPages* const pages = carrier_.slot_pages_of(transfer);
  if (transfer.direct() || !transfer.writes() || pages == nullptr) {
    carrier_.send(transfer, depth);
    return;
  }
  transfer.at_device = true;
  transfer.depth = std::max(transfer.depth, depth);
  send_runs(transfer, *pages);
}

// A write to a slot that lacks pages is one for each run of pages. The tier joins those that are
// neighbours in the slot.
void Demoter::send_runs(Demote& transfer, const SlotPages& pages) {
  const std::uint64_t page = pages.page_bytes;
  const auto first = static_cast<unsigned>(transfer.from / page);
  const auto last = static_cast<unsigned>((transfer.from + transfer.length) / page);
  transfer.ended = {};
  transfer.open = 0;
  for (unsigned begin = pages.next(first, true); begin < last;) {
    const unsigned end = std::min(pages.next(begin, false), last);
    ++transfer.open;
    transfer.slot_tier->tier->submit(
        {.cookie = std::uint64_t{transfer.open} << 32 | transfer.job.transfer,
         .slot = transfer.slot,
         .write = true,
         .data = transfer.job.data + begin * page,
         .length = (end - begin) * page,
         .offset = pages.before(begin) * page});
    begin = pages.next(end, true);
  }
}

bool Demoter::run_ended(const SlotCompletion& run, SlotCompletion& all) {
  Demote& transfer = carrier_.at<Demote>(static_cast<std::uint32_t>(run.cookie));
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

}  // namespace tiermem

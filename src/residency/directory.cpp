// Lookups in the directory that take more than a line, and the changes of slot copies.
#include "residency/directory.hpp"

#include <algorithm>
#include <utility>

namespace tiermem {

unsigned Directory::readable_elsewhere(ExtentRef ref, unsigned space) const {
  for (unsigned other = 0; other < spaces(); ++other) {
    if (other != space && readable(ref, other)) {
      return other;
    }
  }
  return kNoSpace;
}

FrameRequest Directory::frame_request(ExtentRef ref, unsigned space) const {
  const BufferRecord& record = record_of(ref);
  const std::uint64_t domain = record.domain == kIsolatedDomain ? handle_of(ref) : record.domain;
  const bool plain =
      space != kHost || !(touchable(ref) || record.read_only.load(std::memory_order_relaxed));
  const bool bound = space == kHost && has_flag(ref, kBound);
  return {.pool = space == kHost ? record.pool : Pool::locked,
          .bytes = bytes_of(ref),
          .domain = domain,
          .plain = plain,
          .only = bound ? record.preferred.load(std::memory_order_relaxed) : kMostMemories};
}

std::byte* Directory::address_in_window(ExtentRef ref, unsigned space) const {
  const BufferRecord& record = record_of(ref);
  // Relaxed: a caller that needs a window has set it before it posted the request, and the window
  // stays for the life of the buffer.
  std::byte* const window = record.windows[space].load(std::memory_order_relaxed);
  const std::uint64_t i = number_of(ref);
  return window == nullptr ? nullptr
                           : window + (i << record.extent_shift.load(std::memory_order_relaxed));
}

SlotCopy Directory::slot_copy(ExtentRef ref) const {
  SlotCopy copy = at(ref).copy_;
  if (!copy.exists()) {
    return SlotCopy{};
  }
  if (copy.current() && dirty_in_memory(ref)) {
    copy.state = SlotCopy::State::old;
  }
  return copy;
}

void Directory::add_slot(ExtentRef ref, std::uint8_t tier, SlotId slot, std::uint32_t stamp,
                         SlotPagesOwner pages) const {
  assert(slot.valid() && tier < kMostWritableTiers && !owns_slot(ref));
  const ChecksumsOwner of_file(take_copy(ref).sums);
  SlotCopy& copy = at(ref).copy_;
  copy.slot = slot;
  copy.pages = pages.release();
  copy.stamp = stamp;
  copy.tier = tier & 0xf;  // As wide as the field.
  copy.state = SlotCopy::State::partial;
}

void Directory::begin_write(ExtentRef ref) const {
  assert(owns_slot(ref));
  at(ref).copy_.state = SlotCopy::State::partial;
}

void Directory::cancel_write(ExtentRef ref) const {
  assert(owns_slot(ref));
  at(ref).copy_.state = SlotCopy::State::current;
}

void Directory::finish_write(ExtentRef ref, ChecksumsOwner sums) const {
  if (owns_slot(ref)) {
    at(ref).copy_.state = SlotCopy::State::current;
    set_checksums(ref, std::move(sums));
  }
}

void Directory::set_checksums(ExtentRef ref, ChecksumsOwner sums) const {
  assert(has_slot_copy(ref));
  const ChecksumsOwner before(std::exchange(at(ref).copy_.sums, sums.release()));
}

Checksums* Directory::checksums_of_file(ExtentRef ref, std::uint32_t block_bytes) const {
  assert(has_slot_copy(ref) && !owns_slot(ref));
  if (at(ref).copy().sums == nullptr) {
    ChecksumsOwner unseen(Checksums::make(bytes_of(ref), block_bytes));
    if (unseen == nullptr) {
      return nullptr;
    }
    std::fill_n(unseen->blocks, unseen->count, Checksums::Hash{});
    set_checksums(ref, std::move(unseen));
  }
  return at(ref).copy().sums;
}

void Directory::drop_copy(ExtentRef ref) const {
  assert(!has_replica(ref));
  const SlotCopy dropped = take_copy(ref);
  Checksums::destroy(dropped.sums);
  SlotPages::destroy(dropped.pages);
  if (record_of(ref).adopted()) {
    return_to_file(ref);
  }
}

void Directory::move_slot(ExtentRef from, ExtentRef to) const {
  assert(owns_slot(from) && !owns_slot(to));
  const ChecksumsOwner of_file(take_copy(to).sums);
  at(to).copy_ = take_copy(from);
  if (has_replica(from)) {
    residency_->extents.replica(to) = drop_replica(from);
  }
  if (record_of(from).adopted()) {
    return_to_file(from);
  }
}

void Directory::add_replica(ExtentRef ref, std::uint8_t tier, SlotId slot,
                            std::uint32_t stamp) const {
  assert(owns_slot(ref) && !has_replica(ref) && tier > at(ref).copy().tier);
  residency_->extents.replica(ref) = {.slot = slot, .stamp = stamp, .tier = tier, .exists = true};
}

SlotReplica Directory::drop_replica(ExtentRef ref) const {
  assert(has_replica(ref));
  return std::exchange(residency_->extents.replica(ref), SlotReplica{});
}

SlotReplica Directory::use_replica(ExtentRef ref) const {
  const SlotReplica replica = drop_replica(ref);
  SlotCopy& copy = at(ref).copy_;
  const SlotReplica before{
      .slot = copy.slot, .stamp = copy.stamp, .tier = copy.tier, .exists = true};
  copy.slot = replica.slot;
  copy.stamp = replica.stamp;
  copy.tier = replica.tier & 0xf;  // As wide as the field.
  return before;
}

// The extent has no copy after this. The caller owns the records of the copy that is returned.
SlotCopy Directory::take_copy(ExtentRef ref) const {
  return std::exchange(at(ref).copy_, SlotCopy{});
}

// The copy of an adopted extent is its part of the file. A file's slots are numbered by the block.
void Directory::return_to_file(ExtentRef ref) const {
  SlotCopy& copy = at(ref).copy_;
  assert(!copy.exists());
  copy.slot = {record_of(ref).first_slot().value +
               number_of(ref) * (bytes_of(ref) / kSmallestExtent)};
  copy.tier = kFileTier;
  copy.state = SlotCopy::State::current;
}

bool Directory::dirty_in_memory(ExtentRef ref) const {
  for (unsigned space = 0; space < spaces(); ++space) {
    const ExtentBits bits = word(space, ref).load();
    if (bits.readable() && bits.dirty()) {
      return true;
    }
  }
  return false;
}

}  // namespace tiermem

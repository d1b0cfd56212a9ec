// Gathers as requests: which extents they need, and which reads are sent, answered by what is
// known, or left to the caller. The stepping thread only; never waits.
#include <algorithm>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

std::uint32_t Mover::read_unit(const BufferRecord& record) const {
  const bool adopted = record.read_only.load(std::memory_order_relaxed) ||
                       (record.flags.load(std::memory_order_relaxed) & kPrivate) != 0;
  const bool checked =
      options_.checksums &&
      (adopted || (record.flags.load(std::memory_order_relaxed) & kNoChecksum) == 0);
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  const std::uint64_t block = checked ? engine_.checksum_block(record) : kSmallestExtent;
  return static_cast<std::uint32_t>(std::min(block, extent));
}

std::span<GatherRead> Mover::reads_of(const Request& request, ExtentRef ref) {
  const std::span<GatherRead> all = request.gather->reads;
  const auto first =
      std::lower_bound(all.begin(), all.end(), ref,
                       [](const GatherRead& read, ExtentRef at) { return read.ref < at; });
  const auto last =
      std::find_if(first, all.end(), [&](const GatherRead& read) { return read.ref != ref; });
  return {first, last};
}

void Mover::build_gather_needs(Request& request) {
  for (const GatherRead& read : request.gather->reads) {
    directory_.begin(request.spans.front(), read.ref);
    if (request.needs.empty() || request.needs.back().ref != read.ref) {
      request.needs.push_back({.ref = read.ref});
    }
  }
}

// Returns where the newest bytes of the extent are. Written bytes of a private extent may be in
// memory only.
GatherRead::Found Mover::gathers_from(ExtentRef ref, std::span<const GatherRead> reads) const {
  const Extent& extent = directory_.at(ref);
  const Phase host = directory_.word(kHost, ref).load().phase();
  const bool in_memory = directory_.readable_elsewhere(ref, kNoSpace) != kNoSpace;
  // Written on a device and put down from there, it is in a slot and the host's phase still zero.
  if ((host == Phase::zero || host == Phase::vacant) && !in_memory && !extent.has_slot) {
    return GatherRead::Found::zeros;
  }
  const auto dirty_anywhere = [&](ExtentRef at) {
    for (unsigned space = 0; space < directory_.spaces(); ++space) {
      const ExtentBits bits = directory_.word(space, at).load();
      if (bits.readable() && bits.dirty()) {
        return true;
      }
    }
    return false;
  };
  const bool below = extent.has_slot ? directory_.slot_is_newest(ref)
                                     : directory_.record_of(ref).file != 0 && !dirty_anywhere(ref);
  if (directory_.readable(ref, kHost) || host == Phase::lost || !below || extent.parts != 0 ||
      extent.zeros != 0 || extent.slot_pages != nullptr) {
    return GatherRead::Found::elsewhere;
  }
  const std::uint32_t block = extent.sums != nullptr && options_.checksums
                                  ? extent.sums->block_bytes
                                  : static_cast<std::uint32_t>(kSmallestExtent);
  const bool whole = std::all_of(reads.begin(), reads.end(), [&](const GatherRead& read) {
    return (read.offset | read.length) % block == 0;
  });
  return whole ? GatherRead::Found::bytes : GatherRead::Found::elsewhere;
}

// Answered at once, because the caller may have views that other requests wait for. An extent that
// is about to change therefore counts as changed.
void Mover::compare_known(ExtentRef ref, std::span<GatherRead> reads) const {
  const Extent& extent = directory_.at(ref);
  const bool stays =
      (extent.transfer == 0 || engine_.transfer_of(ref)->kind == Transfer::Kind::gather) &&
      !directory_.claimed(ref, kHost) && gathers_from(ref, reads) == GatherRead::Found::bytes;
  const Checksums* const sums = stays && options_.checksums ? extent.sums : nullptr;
  for (GatherRead& read : reads) {
    const bool same = sums != nullptr && sums->block_bytes == read.length &&
                      sums->blocks[read.offset / read.length] == *read.sums;
    read.found = same ? GatherRead::Found::known : GatherRead::Found::elsewhere;
  }
}

Mover::Arm Mover::arm_gather(Request& request, const Need& need) {
  const std::span<GatherRead> reads = reads_of(request, need.ref);
  if (reads.front().found != GatherRead::Found::nothing) {
    return Arm::ready;
  }
  if (const Span* stale = stale_span(request)) {
    // Freed without the mover: the extents may be in their next life.
    fail_request(request, fail(Code::stale_handle, "handle {:#x} was freed while it was read",
                               stale->buffer));
    return Arm::ready;
  }
  if (request.gather->known) {
    compare_known(need.ref, reads);
    return Arm::ready;
  }
  if (directory_.at(need.ref).transfer != 0) {
    return Arm::wait_transfer;
  }
  if (directory_.claimed(need.ref, kHost)) {
    return Arm::wait_pins;
  }
  const GatherRead::Found found = gathers_from(need.ref, reads);
  if (found == GatherRead::Found::bytes) {
    engine_.start_gather(request, reads);
    return Arm::wait_transfer;
  }
  for (GatherRead& read : reads) {
    read.found = found;
  }
  return Arm::ready;
}

}  // namespace tiermem

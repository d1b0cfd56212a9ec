#include "mover/gather_needs.hpp"

#include <algorithm>

namespace tiermem {

std::span<GatherRead> GatherNeeds::reads_of(const Request& request, ExtentRef ref) {
  const std::span<GatherRead> all = request.gather->reads;
  const auto first =
      std::lower_bound(all.begin(), all.end(), ref,
                       [](const GatherRead& read, ExtentRef at) { return read.ref < at; });
  const auto last =
      std::find_if(first, all.end(), [&](const GatherRead& read) { return read.ref != ref; });
  return {first, last};
}

void GatherNeeds::build(Request& request) const {
  auto span = request.spans.begin();
  for (const GatherRead& read : request.gather->reads) {
    while (read.ref >= span->first + span->count) {
      ++span;
    }
    directory_.begin(*span, read.ref);
    if (request.needs.empty() || request.needs.back().ref != read.ref) {
      request.needs.push_back({.ref = read.ref});
    }
  }
}

// Returns where the newest bytes of the extent are. Written bytes of a private extent may be in
// memory only.
GatherRead::Found GatherNeeds::look(ExtentRef ref, std::span<const GatherRead> reads) const {
  const Extent& extent = directory_.at(ref);
  const Phase host = directory_.word(kHost, ref).load().phase();
  const bool in_memory = directory_.readable_elsewhere(ref, kNoSpace) != kNoSpace;
  // Written on a device and put down from there, it is in a slot and the host's phase still zero.
  if ((host == Phase::zero || host == Phase::vacant) && !in_memory &&
      !directory_.has_slot_copy(ref)) {
    return GatherRead::Found::zeros;
  }
  if (directory_.readable(ref, kHost) || host == Phase::lost ||
      !directory_.slot_copy(ref).current() || extent.parts != 0 || extent.zeros != 0 ||
      extent.copy().pages != nullptr) {
    return GatherRead::Found::elsewhere;
  }
  const bool to_program = std::any_of(reads.begin(), reads.end(),
                                      [](const GatherRead& read) { return read.to_program; });
  if (to_program && engine_.slots().of(directory_.slot_copy(ref)).tier->compresses()) {
    return GatherRead::Found::elsewhere;
  }
  const Checksums* const sums = extent.copy().sums;
  const std::uint32_t block = sums != nullptr && checksums_
                                  ? sums->block_bytes
                                  : static_cast<std::uint32_t>(kSmallestExtent);
  const bool whole = std::all_of(reads.begin(), reads.end(), [&](const GatherRead& read) {
    return (read.offset | read.length) % block == 0;
  });
  return whole ? GatherRead::Found::bytes : GatherRead::Found::elsewhere;
}

// Answered at once, because the caller may have views that other requests wait for. An extent that
// is about to change therefore counts as changed.
void GatherNeeds::compare_known(ExtentRef ref, std::span<GatherRead> reads) const {
  const Extent& extent = directory_.at(ref);
  const bool stays =
      (extent.transfer == 0 || engine_.transfer_of(ref)->kind == Transfer::Kind::gather) &&
      !directory_.claimed(ref, kHost) && look(ref, reads) == GatherRead::Found::bytes;
  const Checksums* const sums = stays && checksums_ ? extent.copy().sums : nullptr;
  for (GatherRead& read : reads) {
    const bool same = sums != nullptr && sums->block_bytes == read.length &&
                      sums->blocks[read.offset / read.length] == *read.sums;
    read.found = same ? GatherRead::Found::known : GatherRead::Found::elsewhere;
  }
}

}  // namespace tiermem

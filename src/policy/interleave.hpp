// Interleave: the memory of each extent of a buffer that is spread over several memories. Threads
// that read all of such a buffer use the bandwidths of all memories together, so each memory gets a
// share in the ratio of its bandwidth. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tiermem {

/// The longest order of interleave_order().
inline constexpr std::size_t kLongestInterleave = 64;

/// Returns the numbers of the memories for consecutive extents, to be repeated. `bandwidths`: by
/// the number of the memory, in one unit. If one is 0, it is unknown, and all memories get the same
/// share. Each memory gets at least one extent. The extents of a memory are as evenly spread as
/// they can be.
inline std::vector<std::uint8_t> interleave_order(std::span<const std::uint64_t> bandwidths) {
  if (bandwidths.empty()) {
    return {};
  }
  const std::uint64_t least = *std::min_element(bandwidths.begin(), bandwidths.end());
  const std::uint64_t most = kLongestInterleave / bandwidths.size();
  std::vector<std::uint64_t> weights;
  std::uint64_t sum = 0;
  for (const std::uint64_t each : bandwidths) {
    weights.push_back(least == 0 ? 1 : std::min(each / least + (each % least * 2 >= least), most));
    sum += weights.back();
  }
  // Each turn, every memory is owed its weight, and the one that is owed most gets the extent.
  std::vector<std::int64_t> owed(weights.size());
  std::vector<std::uint8_t> order;
  for (std::uint64_t turn = 0; turn < sum; ++turn) {
    for (std::size_t i = 0; i < owed.size(); ++i) {
      owed[i] += static_cast<std::int64_t>(weights[i]);
    }
    const auto next = std::max_element(owed.begin(), owed.end());
    *next -= static_cast<std::int64_t>(sum);
    order.push_back(static_cast<std::uint8_t>(next - owed.begin()));
  }
  return order;
}

}  // namespace tiermem

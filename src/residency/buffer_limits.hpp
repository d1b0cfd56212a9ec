// The max size of a buffer for each extent size. These limits have one place: alloc, adopt_file,
// malloc and tm_caps use this file. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/checked.hpp"
#include "residency/views.hpp"

namespace tiermem {

/// Max bytes of a buffer with any extent size. A process has 2^47 bytes of addresses.
inline constexpr std::uint64_t kLargestBuffer = std::uint64_t{1} << 47;
/// Max extents of a context. A context has fewer if RLIMIT_AS is low.
inline constexpr std::uint32_t kMostExtents = 1u << 26;
static_assert(kMostExtents < PinnedRun::kMaxCount, "a view of a whole buffer counts its extents");

/// Returns the max bytes of a buffer with extents of `extent_bytes`, a power of two, in a context
/// that has `extents` extents.
constexpr std::uint64_t largest_buffer(std::uint64_t extent_bytes, std::uint32_t extents) noexcept {
  return std::min(kLargestBuffer, saturating_mul<std::uint64_t>(extent_bytes, extents));
}

/// Returns the number of extents of a buffer of `bytes` that begins `lead` bytes into its first
/// extent. Nothing if the buffer is empty or larger than largest_buffer().
constexpr std::optional<std::uint32_t> extents_of(std::uint64_t lead, std::uint64_t bytes,
                                                  std::uint64_t extent_bytes,
                                                  std::uint32_t extents) noexcept {
  const std::optional<std::uint64_t> end = checked_add(lead, bytes);
  if (bytes == 0 || !end || *end > largest_buffer(extent_bytes, extents)) {
    return std::nullopt;
  }
  return narrow<std::uint32_t>((*end - 1) / extent_bytes + 1);
}

}  // namespace tiermem

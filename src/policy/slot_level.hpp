// The level of a bounded slot tier: when some of its bytes are copied to the next tier. Values in,
// values out. Pure; any thread.
//
// A fast tier that is full sends all new bytes to the slower one, however cold its own are. So a
// part of it is kept ready: free, or held by slots with a replica in the slower tier, which can be
// given up at once. The extents that left memory first are copied first.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

/// The slots of one tier, in bytes.
struct SlotLevel {
  std::uint64_t room = 0;  ///< The most that they can have.
  std::uint64_t in_use = 0;
  std::uint64_t replicated = 0;  ///< The part of `in_use` that has replicas.
  std::uint64_t share = kShare;  ///< One part in this many of the tier is kept ready.

  static constexpr std::uint64_t kShare = 16;
  static constexpr std::uint64_t kMostReady = std::uint64_t{8} << 30;
  static constexpr unsigned kMostDestages = 2;  ///< At one time.

  /// Returns the bytes that are kept ready.
  constexpr std::uint64_t ready() const { return std::min(room / share, kMostReady); }
  /// Returns whether one more extent is copied to the next tier.
  constexpr bool wants_destage() const {
    const std::uint64_t free = room - std::min(room, in_use);
    return free < ready() && replicated < ready() - free;
  }
};

}  // namespace tiermem

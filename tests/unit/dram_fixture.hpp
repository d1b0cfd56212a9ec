// Shared by the DRAM tier's tests: bytes that identify frames, and tiers that use one mechanism.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tier/dram.hpp"

namespace tiermem {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = kKiB * 1024;

inline DramOptions small_options(std::uint64_t budget) {
  return {.budget = budget, .window_reserve_bytes = std::uint64_t{32} << 30};
}

/// Returns an error if the mechanism does not work on this machine; the test is then skipped.
inline Result<std::unique_ptr<DramTier>> make_tier(std::uint64_t budget, Mechanism mechanism) {
  DramOptions options = small_options(budget);
  options.mechanism = mechanism;
  return DramTier::create(options);
}

/// Writes words that identify extent and version.
inline void fill(std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    value = value * 6364136223846793005 + 1442695040888963407;
    std::memcpy(data + i, &value, 8);
  }
}

inline bool holds(const std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    value = value * 6364136223846793005 + 1442695040888963407;
    if (std::memcmp(data + i, &value, 8) != 0) {
      return false;
    }
  }
  return true;
}

/// A tier that moves (or copies) pages, and a frame with bytes that is not yet in its window.
struct MovedFrame {
  explicit MovedFrame(Mechanism mechanism = Mechanism::uffd_move, std::uint64_t bytes = kBytes,
                      bool mapped = false) {
    DramOptions options = small_options(16 * kMiB);
    options.mechanism = mechanism;
    options.follow_forks = true;
    auto made = DramTier::create(options);
    if (!made.ok()) {
      why_not = made.message();
      return;
    }
    tier = std::move(*made);
    window = *tier->reserve_window(2 * bytes, bytes, mapped);
    frame = tier->acquire_frame({tier->window_pool(bytes), bytes, 0});
    const Status populated = tier->populate(frame, false, nullptr);
    EXPECT_TRUE(populated.ok()) << populated.message();
    home = tier->landing(frame, window);
    fill(home, bytes, 1);
  }

  static constexpr std::uint64_t kBytes = 2 * kMiB;
  static constexpr std::uint64_t kWindow = 2 * kBytes;
  /// Why the tier could not be created on this machine; the test is then skipped.
  std::string why_not;
  std::unique_ptr<DramTier> tier;
  std::byte* window = nullptr;
  FrameId frame;
  std::byte* home = nullptr;
};

}  // namespace tiermem

// Shared by the tests of the host's space: bytes that identify frames, and spaces that use one
// mechanism.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tier/host_space.hpp"

namespace tiermem {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = kKiB * 1024;

inline HostSpaceOptions small_options(std::uint64_t budget) {
  return {.memories = {{.budget = budget}}, .window_reserve_bytes = std::uint64_t{32} << 30};
}

/// Returns an error if the mechanism does not work on this machine; the test is then skipped.
inline Result<std::unique_ptr<HostSpace>> make_space(std::uint64_t budget, Mechanism mechanism) {
  HostSpaceOptions options = small_options(budget);
  options.mechanism = mechanism;
  return HostSpace::create(options);
}

/// Writes words that identify extent and version. `data` is aligned.
inline void fill(std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  auto* const words = reinterpret_cast<std::uint64_t*>(data);
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0, end = bytes / 8; i < end; ++i) {
    value = value * 6364136223846793005 + 1442695040888963407;
    words[i] = value;
  }
}

inline bool holds(const std::byte* data, std::uint64_t bytes, std::uint64_t what) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(data);
  std::uint64_t value = what * 0x9e3779b97f4a7c15 + 1;
  for (std::uint64_t i = 0, end = bytes / 8; i < end; ++i) {
    value = value * 6364136223846793005 + 1442695040888963407;
    if (words[i] != value) {
      return false;
    }
  }
  return true;
}

/// A space that moves (or copies) pages, and a frame with bytes that is not yet in its window.
struct MovedFrame {
  explicit MovedFrame(Mechanism mechanism = Mechanism::uffd_move, std::uint64_t bytes = kBytes,
                      bool mapped = false) {
    HostSpaceOptions options = small_options(16 * kMiB);
    options.mechanism = mechanism;
    options.follow_forks = true;
    auto made = HostSpace::create(options);
    if (!made.ok()) {
      why_not = made.message();
      return;
    }
    space = std::move(*made);
    window = *space->reserve_window(2 * bytes, bytes, mapped);
    frame = space->memory().acquire_frame({space->window_pool(bytes), bytes, 0});
    const Status populated = space->memory().populate(frame, false, nullptr);
    EXPECT_TRUE(populated.ok()) << populated.message();
    home = space->bytes_at(frame, window);
    fill(home, bytes, 1);
  }

  static constexpr std::uint64_t kBytes = 2 * kMiB;
  static constexpr std::uint64_t kWindow = 2 * kBytes;
  /// Why the space could not be created on this machine; the test is then skipped.
  std::string why_not;
  std::unique_ptr<HostSpace> space;
  std::byte* window = nullptr;
  FrameId frame;
  std::byte* home = nullptr;
};

}  // namespace tiermem

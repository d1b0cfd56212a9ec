// The staging's pieces: separate runs for extents of any size.
#include "mover/staging.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(Staging, one_frame_holds_one_of_the_largest_or_many_small_ones) {
  std::vector<std::byte> memory(16);
  Staging staging(16 * kMiB);
  EXPECT_FALSE(staging.take(kSmallestExtent));
  staging.add({7}, memory.data());
  EXPECT_EQ(staging.bytes(), 16 * kMiB);
  const Staging::Place whole = staging.take(16 * kMiB);
  ASSERT_TRUE(whole);
  EXPECT_EQ(staging.frame(whole), FrameId{7});
  EXPECT_EQ(staging.data(whole), memory.data());
  EXPECT_FALSE(staging.take(kSmallestExtent));
  staging.give(whole, 16 * kMiB);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(staging.take(2 * kMiB)) << i;
  }
  EXPECT_FALSE(staging.take(kSmallestExtent));
}

// Compared with a map of bytes.
TEST(Staging, runs_do_not_overlap) {
  std::mt19937 random(5);
  for (const std::uint64_t frame_bytes : {kSmallestExtent, 64 * kSmallestExtent, 16 * kMiB}) {
    constexpr std::uint64_t kFrames = 3;
    Staging staging(frame_bytes);
    auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      staging.add({i}, base + i * frame_bytes);
    }
    struct Run {
      Staging::Place place;
      std::uint64_t bytes;
    };
    std::map<std::byte*, Run> taken;
    for (int round = 0; round < 20'000; ++round) {
      if (random() % 2 == 0 && !taken.empty()) {
        auto victim = taken.begin();
        std::advance(victim, random() % taken.size());
        staging.give(victim->second.place, victim->second.bytes);
        taken.erase(victim);
        continue;
      }
      std::uint64_t bytes = kSmallestExtent;
      while (bytes < frame_bytes && random() % 3 != 0) {
        bytes *= 2;
      }
      const Staging::Place place = staging.take(bytes);
      if (!place) {
        ASSERT_FALSE(taken.empty()) << "it is empty, and has no room";
        continue;
      }
      std::byte* const at = staging.data(place);
      ASSERT_EQ(staging.frame(place).value, static_cast<std::uint64_t>(at - base) / frame_bytes);
      ASSERT_LE(at + bytes, base + kFrames * frame_bytes);
      const auto next = taken.lower_bound(at);
      ASSERT_TRUE(next == taken.end() || at + bytes <= next->first);
      ASSERT_TRUE(next == taken.begin() ||
                  std::prev(next)->first + std::prev(next)->second.bytes <= at);
      taken.emplace(at, Run{place, bytes});
    }
    while (!taken.empty()) {
      staging.give(taken.begin()->second.place, taken.begin()->second.bytes);
      taken.erase(taken.begin());
    }
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      EXPECT_TRUE(staging.take(frame_bytes));
    }
  }
}

}  // namespace
}  // namespace tiermem

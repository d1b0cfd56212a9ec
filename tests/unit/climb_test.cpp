// When extents climb to a faster memory.
#include "policy/climb.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{1} << 20;

// Runs a whole round over `count` extents. Returns the number of looks.
unsigned round(Climb& climb, std::int64_t now, std::uint32_t count) {
  unsigned looks = 0;
  while (climb.begin_round(now, kBudget)) {
    EXPECT_EQ(climb.next(count), looks);
    ++looks;
  }
  return looks;
}

TEST(Climb, round_looks_at_each_extent_once) {
  Climb climb;
  EXPECT_EQ(round(climb, 0, 5), 5u);
  EXPECT_EQ(round(climb, Climb::kRoundNs - 1, 5), 0u) << "the next round has not begun";
  EXPECT_EQ(round(climb, Climb::kRoundNs, 5), 5u);
}

TEST(Climb, extent_is_used_in_two_rounds_then_it_climbs) {
  EXPECT_FALSE(Climb::wants(0));
  EXPECT_FALSE(Climb::wants(1)) << "it may be the use for which it came";
  EXPECT_TRUE(Climb::wants(2));
}

TEST(Climb, climbs_are_in_vain_then_rounds_get_longer_and_uses_shorten_them) {
  Climb climb;
  climb.was_in_vain();
  climb.was_in_vain();
  EXPECT_EQ(round(climb, 0, 1), 1u);
  EXPECT_EQ(round(climb, 4 * Climb::kRoundNs - 1, 1), 0u);
  climb.was_used();
  EXPECT_EQ(round(climb, 4 * Climb::kRoundNs, 1), 1u);
  EXPECT_EQ(round(climb, 6 * Climb::kRoundNs, 1), 1u);
  for (int i = 0; i < 100; ++i) {
    climb.was_in_vain();
  }
  EXPECT_EQ(climb.reluctance(), Climb::kMostReluctance);
}

TEST(Climb, bytes_of_a_round_are_limited_and_one_extent_may_always_climb) {
  Climb climb;
  EXPECT_TRUE(climb.begin_round(0, kBudget));
  EXPECT_TRUE(climb.may(kBudget));
  climb.climbed(kBudget / 16);
  EXPECT_TRUE(climb.may(kBudget / 16));
  climb.climbed(kBudget / 16);
  EXPECT_FALSE(climb.may(1));
}

}  // namespace
}  // namespace tiermem

// The level of a slot tier, as a pure decision.
#include "policy/slot_level.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(SlotLevel, tier_has_room_then_nothing_is_copied) {
  EXPECT_FALSE((SlotLevel{.budget = 160 * kMiB, .in_use = 0}.wants_destage()));
  EXPECT_FALSE((SlotLevel{.budget = 160 * kMiB, .in_use = 150 * kMiB}.wants_destage()));
}

TEST(SlotLevel, less_than_a_sixteenth_is_free_then_bytes_are_copied_until_replicas_make_it_up) {
  EXPECT_TRUE((SlotLevel{.budget = 160 * kMiB, .in_use = 151 * kMiB}.wants_destage()));
  EXPECT_FALSE(
      (SlotLevel{.budget = 160 * kMiB, .in_use = 151 * kMiB, .replicated = kMiB}.wants_destage()));
  EXPECT_TRUE((SlotLevel{.budget = 160 * kMiB, .in_use = 160 * kMiB, .replicated = 9 * kMiB}
                   .wants_destage()));
}

TEST(SlotLevel, budget_was_lowered_below_what_is_used_then_there_is_no_overflow) {
  EXPECT_TRUE((SlotLevel{.budget = 160 * kMiB, .in_use = 500 * kMiB}.wants_destage()));
  EXPECT_FALSE((SlotLevel{.budget = 0, .in_use = 500 * kMiB}.wants_destage()));
}

TEST(SlotLevel, tier_is_large_then_the_part_that_is_kept_ready_has_a_limit) {
  const SlotLevel level{.budget = std::uint64_t{100} << 40};
  EXPECT_EQ(level.ready(), SlotLevel::kMostReady);
}

TEST(SlotLevel, devices_have_less_room_than_the_budget_then_a_refusal_counts_as_full) {
  SlotLevel level{.budget = ~std::uint64_t{0}, .in_use = 100 * kMiB, .refused = true};
  EXPECT_TRUE(level.wants_destage());
  level.replicated = SlotLevel::kMostReady;
  EXPECT_FALSE(level.wants_destage());
  level.replicated = 0;
  level.refused = false;
  EXPECT_FALSE(level.wants_destage());
}

}  // namespace
}  // namespace tiermem

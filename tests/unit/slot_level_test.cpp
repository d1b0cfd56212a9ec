// The level of a slot tier, as a pure decision.
#include "policy/slot_level.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(SlotLevel, tier_has_room_then_nothing_is_copied) {
  EXPECT_FALSE((SlotLevel{.room = 160 * kMiB, .in_use = 0}.wants_destage()));
  EXPECT_FALSE((SlotLevel{.room = 160 * kMiB, .in_use = 150 * kMiB}.wants_destage()));
}

TEST(SlotLevel, less_than_a_sixteenth_is_free_then_bytes_are_copied_until_replicas_make_it_up) {
  EXPECT_TRUE((SlotLevel{.room = 160 * kMiB, .in_use = 151 * kMiB}.wants_destage()));
  EXPECT_FALSE(
      (SlotLevel{.room = 160 * kMiB, .in_use = 151 * kMiB, .replicated = kMiB}.wants_destage()));
  EXPECT_TRUE((
      SlotLevel{.room = 160 * kMiB, .in_use = 160 * kMiB, .replicated = 9 * kMiB}.wants_destage()));
}

TEST(SlotLevel, room_is_less_than_what_is_used_then_there_is_no_overflow) {
  EXPECT_TRUE((SlotLevel{.room = 160 * kMiB, .in_use = 500 * kMiB}.wants_destage()));
  EXPECT_FALSE((SlotLevel{.room = 0, .in_use = 500 * kMiB}.wants_destage()));
}

TEST(SlotLevel, tier_is_large_then_the_part_that_is_kept_ready_has_a_limit) {
  const SlotLevel level{.room = std::uint64_t{100} << 40};
  EXPECT_EQ(level.ready(), SlotLevel::kMostReady);
}

}  // namespace
}  // namespace tiermem

// Spare buffers: which spare serves which allocation, how much they may hold, and when more are
// ordered.
#include "residency/spares.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace tiermem {
namespace {

constexpr Spares::Shape kSmall{.extents = 1, .extent_shift = 12};
constexpr Spares::Shape kLarge{.extents = 4, .extent_shift = 21};
constexpr unsigned kMissesToOrder = 8;

class SparesTest : public ::testing::Test {
 protected:
  SparesTest() { spares.set_limit(kLimit); }
  /// Makes allocations that find no spare. Returns the last order.
  unsigned miss(Spares::Shape shape, unsigned times) {
    unsigned order = 0;
    for (unsigned i = 0; i < times; ++i) {
      order = order != 0 ? order : spares.to_order(shape, false);
    }
    return order;
  }

  static constexpr std::uint64_t kLimit = std::uint64_t{64} << 20;
  const std::unique_ptr<Spares> owned = std::make_unique<Spares>();
  Spares& spares = *owned;
};

TEST_F(SparesTest, the_last_that_was_freed_serves_the_next_of_its_shape_and_no_other) {
  ASSERT_TRUE(spares.put(1, kSmall));
  ASSERT_TRUE(spares.put(2, kLarge));
  ASSERT_TRUE(spares.put(3, kSmall));
  Spares::Shape windowed = kSmall;
  windowed.windowed = true;
  EXPECT_EQ(spares.take(windowed), Spares::kNone);
  EXPECT_EQ(spares.take(kSmall), 3u);
  EXPECT_EQ(spares.take(kSmall), 1u);
  EXPECT_EQ(spares.take(kSmall), Spares::kNone);
  EXPECT_EQ(spares.bytes(), kLarge.bytes());
  EXPECT_EQ(spares.take(kLarge), 2u);
  EXPECT_EQ(spares.bytes(), 0u);
}

TEST_F(SparesTest, made_ahead_they_are_taken_in_the_order_in_which_they_were_made) {
  for (std::uint32_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(spares.put_made(i, kSmall));
  }
  EXPECT_EQ(spares.in_stock(kSmall.extent_shift), 4u);
  for (std::uint32_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(spares.take(kSmall), i);
  }
  EXPECT_EQ(spares.in_stock(kSmall.extent_shift), 0u);
}

TEST_F(SparesTest, no_more_bytes_than_the_limit_are_kept_and_no_more_of_one_thread_than_a_shard) {
  spares.set_limit(3 * kSmall.bytes());
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(spares.has_room(kSmall));
    EXPECT_TRUE(spares.put(i, kSmall));
  }
  EXPECT_FALSE(spares.has_room(kSmall));
  EXPECT_FALSE(spares.put(3, kSmall));
  EXPECT_EQ(spares.bytes(), 3 * kSmall.bytes());
  spares.set_limit(kLimit);
  std::uint32_t kept = 3;
  while (kept < 100 && spares.put(kept, kSmall)) {
    ++kept;
  }
  EXPECT_EQ(kept, 16u);
  EXPECT_EQ(spares.count().buffers, 16u);
  EXPECT_EQ(spares.count().bytes, 16 * kSmall.bytes());
  // The mover also fills other shards.
  EXPECT_TRUE(spares.put_made(99, kSmall));
}

TEST_F(SparesTest, the_oldest_are_given_up_first) {
  for (std::uint32_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(spares.put(i, i == 2 ? kLarge : kSmall));
  }
  for (std::uint32_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(spares.take_oldest(), i);
  }
  EXPECT_EQ(spares.take_oldest(), Spares::kNone);
  EXPECT_EQ(spares.bytes(), 0u);
}

TEST_F(SparesTest, more_are_ordered_once_eight_allocations_have_found_none) {
  EXPECT_EQ(miss(kSmall, kMissesToOrder - 1), 0u);
  EXPECT_EQ(spares.to_order(kSmall, true), 0u) << "an allocation that found a spare is not a miss";
  EXPECT_EQ(spares.to_order(kSmall, false), 64u);
  EXPECT_EQ(miss(kSmall, 100), 0u) << "one is on its way";
  spares.end_order(kSmall.extent_shift, true);
  EXPECT_EQ(spares.to_order(kSmall, true), 64u) << "they are used";
}

// Up to 1 MiB.
TEST_F(SparesTest, an_order_of_large_ones_is_smaller) {
  EXPECT_EQ(miss({.extents = 1, .extent_shift = 16}, kMissesToOrder), 16u);
  EXPECT_EQ(miss({.extents = 1, .extent_shift = 18}, kMissesToOrder), 4u);
}

TEST_F(SparesTest, what_is_not_made_ahead_is_never_ordered) {
  EXPECT_EQ(miss({.extents = 2, .extent_shift = 12, .windowed = true}, 100), 0u);
  EXPECT_EQ(miss({.extents = 1, .extent_shift = 12, .windowed = true}, 100), 0u);
  EXPECT_EQ(miss({.extents = 1, .extent_shift = 19}, 100), 0u);
  // Nor do they count as misses of shapes that are.
  EXPECT_EQ(miss(kSmall, kMissesToOrder - 1), 0u);
}

TEST_F(SparesTest, nothing_is_ordered_while_half_an_order_is_there_or_no_room_for_one) {
  for (std::uint32_t i = 0; i <= 32; ++i) {
    ASSERT_TRUE(spares.put_made(i, kSmall));
  }
  EXPECT_EQ(miss(kSmall, 100), 0u);
  EXPECT_NE(spares.take(kSmall), Spares::kNone);
  EXPECT_EQ(spares.to_order(kSmall, true), 64u);
  spares.end_order(kSmall.extent_shift, true);
  spares.set_limit(spares.bytes());
  EXPECT_EQ(spares.to_order(kSmall, true), 0u);
}

TEST_F(SparesTest, an_order_that_nobody_wanted_is_followed_by_a_long_pause) {
  EXPECT_EQ(miss(kSmall, kMissesToOrder), 64u);
  spares.end_order(kSmall.extent_shift, false);
  EXPECT_EQ(miss(kSmall, 1000), 0u);
  EXPECT_EQ(miss(kSmall, kMissesToOrder), 64u);
}

TEST_F(SparesTest, one_that_is_given_up_begins_the_count_of_its_size_anew) {
  EXPECT_EQ(miss(kSmall, kMissesToOrder - 1), 0u);
  ASSERT_TRUE(spares.put(1, kSmall));
  EXPECT_EQ(spares.take_oldest(), 1u);
  EXPECT_EQ(spares.to_order(kSmall, false), 0u);
  EXPECT_EQ(miss(kSmall, kMissesToOrder - 1), 64u);
}

}  // namespace
}  // namespace tiermem

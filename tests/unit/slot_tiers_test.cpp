// Several slot tiers: lookups, and the answers over all of them.
#include "mover/slot_tiers.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "tests/unit/mover_doubles.hpp"
#include "tier/block.hpp"
#include "tier/compressed.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 16384;

struct SlotTiersTest : ::testing::Test {
  HeldWorkers workers;
  HeldPort port{1, 64 * kExtent};
  BlockTier fast{port, {.depth = 8, .piece_bytes = kExtent}};
  BlockTier slow{port, {.depth = 8, .piece_bytes = kExtent, .index = 1}};
  SlotTiers tiers{64,
                  std::vector<SlotTier*>{&fast, &slow},
                  nullptr,
                  workers,
                  {.endurance_bytes_per_day = kExtent}};
};

TEST_F(SlotTiersTest, a_tier_is_found_by_number_and_by_place) {
  EXPECT_EQ(tiers.at(0).tier, &fast);
  EXPECT_EQ(tiers.at(1).tier, &slow);
  EXPECT_EQ(tiers.find({Kind::block, 1}), &tiers.at(1));
  EXPECT_EQ(tiers.find({Kind::block, 2}), nullptr);
  EXPECT_TRUE(tiers.at(1).takes_writes());
  EXPECT_LT(tiers.at(0).rank(), tiers.at(1).rank());
}

TEST_F(SlotTiersTest, after_a_tier_come_those_of_higher_rank) {
  ASSERT_EQ(tiers.after(tiers.at(0)).size(), 1u);
  EXPECT_EQ(tiers.after(tiers.at(0)).front(), &tiers.at(1));
  EXPECT_TRUE(tiers.after(tiers.at(1)).empty());
}

TEST_F(SlotTiersTest, one_tier_works_then_there_is_no_error_and_no_pause) {
  tiers.note_error(tiers.at(0), error_info(Code::no_capacity, "the first is full"));
  tiers.at(0).ledger.pause(1, true);
  EXPECT_EQ(tiers.last_error().code, Code::ok);
  EXPECT_FALSE(tiers.full());
  EXPECT_FALSE(tiers.paused(1));
}

TEST_F(SlotTiersTest, all_tiers_refuse_then_the_last_asked_is_named) {
  tiers.note_error(tiers.at(0), error_info(Code::no_capacity, "the first is full"));
  tiers.note_error(tiers.at(1), error_info(Code::io_error, "the second has failed"));
  tiers.at(0).ledger.pause(1, true);
  tiers.at(1).ledger.pause(1, false);
  EXPECT_STREQ(tiers.last_error().text, "the second has failed");
  EXPECT_TRUE(tiers.full()) << "slots of the first may be dropped";
  EXPECT_TRUE(tiers.paused(1));
  EXPECT_TRUE(tiers.tries_again(1));
}

TEST_F(SlotTiersTest, the_endurance_is_that_of_the_first_tier) {
  EXPECT_TRUE(tiers.at(0).ledger.may_wear(kExtent, 1));
  EXPECT_FALSE(tiers.at(0).ledger.may_wear(kExtent, 1));
  EXPECT_TRUE(tiers.at(1).ledger.may_wear(64 * kExtent, 1));
}

TEST_F(SlotTiersTest, forks_are_counted_alike_in_all_tiers) {
  const std::uint32_t child = tiers.parent_of_child();
  EXPECT_EQ(tiers.at(0).ledger.stamp(), tiers.at(1).ledger.stamp());
  EXPECT_FALSE(tiers.waits_for_child());
  tiers.at(1).ledger.give_up({7}, 0);
  EXPECT_TRUE(tiers.waits_for_child());
  EXPECT_EQ(tiers.check(), "");
  (void)child;
}

// It takes some extents only, so a request is refused or waits as if it were not there.
TEST(SlotTiersThatCompress, decide_no_refusal_and_no_pause) {
  HeldWorkers workers;
  HeldPort port{1, 64 * kExtent};
  CompressedTier packed{16 * kExtent};
  BlockTier drive{port, {.depth = 8, .piece_bytes = kExtent}};
  SlotTiers tiers{64,
                  std::vector<SlotTier*>{&packed, &drive},
                  nullptr,
                  workers,
                  {.endurance_bytes_per_day = kExtent}};
  EXPECT_TRUE(tiers.any_writable());
  EXPECT_EQ(tiers.compressing(), 1u);
  ASSERT_EQ(tiers.lasting().size(), 1u);
  EXPECT_EQ(tiers.lasting().front(), &tiers.at(1));
  EXPECT_TRUE(tiers.at(0).ledger.may_wear(64 * kExtent, 1));
  EXPECT_TRUE(tiers.at(1).ledger.may_wear(kExtent, 1));
  EXPECT_FALSE(tiers.at(1).ledger.may_wear(kExtent, 1)) << "the drive wears";

  tiers.note_error(tiers.at(1), error_info(Code::no_capacity, "the drive is full"));
  tiers.at(1).ledger.pause(1, true);
  tiers.note_error(tiers.at(0), error_info(Code::no_capacity, "packed pages are full"));
  EXPECT_STREQ(tiers.last_error().text, "the drive is full");
  EXPECT_TRUE(tiers.full());
  EXPECT_TRUE(tiers.paused(1));
  tiers.at(0).ledger.forget_error(1);  // A write there has worked since.
  EXPECT_STREQ(tiers.last_error().text, "the drive is full");

  const std::uint32_t child = tiers.parent_of_child();
  EXPECT_FALSE(tiers.at(0).ledger.is_shared(0)) << "a child has pages of its own";
  EXPECT_TRUE(tiers.at(1).ledger.is_shared(0));
  tiers.child_ended(child);
}

TEST(SlotTiersWithoutTiers, errors_of_copies_are_kept) {
  HeldWorkers workers;
  SlotTiers none{64, {}, nullptr, workers, {}};
  EXPECT_FALSE(none.any_writable());
  EXPECT_FALSE(none.paused(1));
  none.note_error(error_info(Code::io_error, "a copy has failed"));
  EXPECT_STREQ(none.last_error().text, "a copy has failed");
}

}  // namespace
}  // namespace tiermem

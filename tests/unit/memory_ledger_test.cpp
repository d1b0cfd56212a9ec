// One memory as the mover sees it: trims, what is kept ahead of need, shortages and wake-ups.
#include "mover/memory_ledger.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "mover/copies.hpp"
#include "tests/unit/mover_doubles.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kFrame = 16384;
constexpr std::int64_t kSecond = 1'000'000'000;

struct MemoryLedgerTest : ::testing::Test {
  MemoryLedgerTest() : tier(64 * kFrame, {Kind::dram, 0}, dice) { memory.tier = &tier; }
  ScriptedDice dice;
  HeldWorkers workers;
  sim::FakeMemory tier;
  MemoryLedger memory;
};

TEST_F(MemoryLedgerTest, nothing_is_trimmed_if_no_bytes_are_wanted_and_none_leave) {
  memory.begin_trim(0, workers);
  EXPECT_FALSE(memory.trimming);
  EXPECT_TRUE(workers.jobs.empty());
}

TEST_F(MemoryLedgerTest, a_job_of_another_part_is_no_trim) {
  const Job other{};
  EXPECT_FALSE(memory.job_done(other));
}

TEST_F(MemoryLedgerTest, waits_for_room_keep_more_free_up_to_a_limit_and_an_eighth_of_the_budget) {
  memory.note_shortage(kFrame, 6 * kFrame);
  EXPECT_EQ(memory.ahead, 4 * kFrame);
  memory.note_shortage(kFrame, 6 * kFrame);
  EXPECT_EQ(memory.ahead, 6 * kFrame);
  memory.note_shortage(kFrame, 100 * kFrame);
  EXPECT_EQ(memory.ahead, 8 * kFrame);
}

TEST_F(MemoryLedgerTest, a_memory_that_another_user_has_taken_shrinks_for_a_second) {
  const FrameId frame = tier.acquire_frame({Pool::small, kFrame, 0});
  ASSERT_TRUE(frame.valid());
  EXPECT_EQ(memory.next(0), kNever);
  memory.shrink_to_actual(kFrame, fail(Code::no_capacity, "taken"), 0);
  EXPECT_EQ(tier.usage().budget, 0u) << "what is used, without the frame that could not be had";
  EXPECT_EQ(memory.shortage.code, Code::no_capacity);
  EXPECT_EQ(memory.next(0), kSecond);
  memory.end_shortage(kSecond - 1);
  EXPECT_EQ(tier.usage().budget, 0u);
  memory.end_shortage(kSecond);
  EXPECT_EQ(tier.usage().budget, 64 * kFrame);
  EXPECT_EQ(memory.next(kSecond), kNever);
}

TEST_F(MemoryLedgerTest, a_copy_out_of_it_is_tried_again_after_a_backoff) {
  memory.exit_backoff.failed(5);
  EXPECT_EQ(memory.next(5), memory.exit_backoff.until());
  EXPECT_EQ(memory.next(memory.exit_backoff.until()), kNever);
}

// An extent climbs to the memory that it prefers.
TEST_F(MemoryLedgerTest, an_extent_that_climbed_and_leaves_unused_has_climbed_in_vain) {
  Extent extent{};
  extent.preferred = memory.rank();
  Copies::note_left(extent, memory);
  EXPECT_EQ(memory.climbs_in_vain, 0u) << "it did not climb";
  extent.uses = 1;
  Copies::note_left(extent, memory);
  EXPECT_EQ(memory.climbs_in_vain, 1u);
  EXPECT_EQ(extent.uses, 0u);
  Copies::note_left(extent, memory);
  EXPECT_EQ(memory.climbs_in_vain, 1u) << "counted once";
  extent.uses = 1;
  extent.preferred = memory.rank() + 1;
  Copies::note_left(extent, memory);
  EXPECT_EQ(memory.climbs_in_vain, 1u);
  EXPECT_EQ(extent.uses, 0u);
}

}  // namespace
}  // namespace tiermem

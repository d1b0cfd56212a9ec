// Buffers with bytes that the program can create again. They are dropped when they must leave
// memory and no block tier has room for them.
#include <gtest/gtest.h>

#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct Droppable : ::testing::Test {
  void SetUp() override { open("dram=16M; nvme=off"); }
  void open(const std::string& tiers) {
    droppable.reset();
    auto made = Context::create(tiers);
    ASSERT_TRUE(made.ok()) << made.message();
    context = std::move(made).value();
    auto cache = context->alloc(8 * kMiB, {.flags = kDroppable, .label = "cache"});
    ASSERT_TRUE(cache.ok()) << cache.message();
    droppable = std::move(cache).value();
    ASSERT_TRUE(write_pattern(droppable, 1).ok());
  }
  // Checks that each chunk is either whole or reported as dropped. Returns the number of dropped
  // chunks.
  unsigned dropped() {
    unsigned n = 0;
    for (std::uint64_t at = 0; at < droppable.size(); at += kChunk) {
      auto view = droppable.acquire(kRead, at, kChunk, Timeout::seconds(20));
      if (view.ok()) {
        EXPECT_EQ(wrong(view->as<std::uint64_t>(), 1, at / 8), 0u);
        continue;
      }
      ++n;
      EXPECT_EQ(view.code(), Code::discarded) << view.message();
      EXPECT_SAYS(view, "cache");
      EXPECT_SAYS(view, "discard");
    }
    return n;
  }
  Directory directory;
  std::unique_ptr<Context> context;
  Buffer droppable;
};

TEST_F(Droppable, bytes_stay_while_there_is_room) {
  EXPECT_EQ(dropped(), 0u);
  EXPECT_EQ(context->stats().dropped, 0u);
}

TEST_F(Droppable, bytes_give_way_to_others) {
  auto other = context->alloc(14 * kMiB);
  ASSERT_TRUE(write_pattern(*other, 2).ok());
  EXPECT_GT(dropped(), 0u);
  EXPECT_EQ(wrong_words(*other, 2), 0u);
  EXPECT_GT(context->stats().dropped, 0u);
}

TEST_F(Droppable, bytes_are_written_down_while_a_block_tier_takes_them) {
  open("dram=16M; nvme=" + directory.path() + ":128M");
  auto other = context->alloc(14 * kMiB);
  ASSERT_TRUE(write_pattern(*other, 2).ok());
  EXPECT_EQ(dropped(), 0u);
  EXPECT_EQ(wrong_words(*other, 2), 0u);
  EXPECT_GT(context->stats().demoted, 0u);
  EXPECT_EQ(context->stats().dropped, 0u);
}

TEST_F(Droppable, bytes_are_dropped_when_the_block_tier_is_full) {
  open("dram=16M; nvme=" + directory.path() + ":16M");
  auto others = context->alloc(26 * kMiB);
  ASSERT_TRUE(write_pattern(*others, 3).ok());
  EXPECT_GT(context->stats().dropped, 0u);
  (void)dropped();
}

// Bytes that were written while there was room are also dropped from their slots.
TEST_F(Droppable, bytes_in_slots_are_dropped_before_anything_is_refused) {
  open("dram=16M; nvme=" + directory.path() + ":16M");
  ASSERT_TRUE(droppable.evict().ok());
  ASSERT_EQ(context->stats().dropped, 0u);
  auto others = context->alloc(30 * kMiB);
  ASSERT_TRUE(write_pattern(*others, 3).ok());
  EXPECT_GE(context->stats().dropped, 6 * kMiB);
  EXPECT_EQ(wrong_words(*others, 3), 0u);
  EXPECT_GE(dropped(), 3u);
}

TEST_F(Droppable, an_evicted_range_is_written_again_by_discard) {
  ASSERT_TRUE(droppable.evict(0, 4 * kMiB).ok());
  EXPECT_EQ(dropped(), 2u);
  auto info = droppable.info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->lost, 4 * kMiB);
  EXPECT_EQ(droppable.acquire(kWrite, 0, 64).code(), Code::discarded)
      << "the rest of the extent is not there";
  ASSERT_TRUE(write_pattern(droppable, 1).ok());
  EXPECT_EQ(dropped(), 0u);
}

TEST_F(Droppable, what_was_given_up_reads_as_zeros) {
  ASSERT_TRUE(droppable.evict().ok());
  ASSERT_TRUE(droppable.advise(Advice::dont_need).ok());
  auto view = droppable.acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_TRUE(std::all_of(view->bytes().begin(), view->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(Droppable, what_was_never_written_is_zero_and_not_dropped) {
  auto untouched = context->alloc(4 * kMiB, {.flags = kDroppable});
  auto view = untouched->acquire(kRead);
  ASSERT_TRUE(view.ok());
  view->release();
  ASSERT_TRUE(untouched->evict().ok());
  view = untouched->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
}

}  // namespace
}  // namespace tiermem::test

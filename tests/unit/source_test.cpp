// Which copy a promote reads.
#include "policy/source.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tiermem {
namespace {

using From = Source::From;
using Copies = std::vector<Source::Copy>;

constexpr Source::Copy kSlot{.from = From::slot, .cost = {.rank = 3}};
constexpr Source::Copy frame(std::uint8_t space) {
  return {.from = From::memory, .space = space, .cost = {.rank = space}};
}

TEST(Source, costs_are_equal_then_the_first_memory_by_rank_is_read) {
  const Source source = Source::choose(Copies{frame(1), frame(0), kSlot}, {});
  EXPECT_EQ(source.from, From::memory);
  EXPECT_EQ(source.space, 0);
  EXPECT_FALSE(source.clears);
}

TEST(Source, no_memory_has_the_bytes_then_the_slot_is_read) {
  EXPECT_EQ(Source::choose(Copies{kSlot}, {}).from, From::slot);
}

TEST(Source, slot_is_cheaper_than_the_memory_then_it_is_read) {
  Source::Copy memory = frame(2);
  memory.cost.ns = 900;
  Source::Copy slot = kSlot;
  slot.cost.ns = 800;
  EXPECT_EQ(Source::choose(Copies{memory, slot}, {}).from, From::slot);
}

TEST(Source, two_copies_cost_the_same_then_the_first_is_read) {
  Source::Copy other = frame(1);
  other.cost.rank = 0;
  EXPECT_EQ(Source::choose(Copies{other, frame(0)}, {}).space, 1);
}

TEST(Source, extent_has_no_copy_then_the_frame_is_cleared_unless_its_next_owner_does) {
  EXPECT_EQ(Source::choose({}, {}).from, From::nothing);
  EXPECT_TRUE(Source::choose({}, {}).clears);
  EXPECT_FALSE(Source::choose({}, {.vacant = true}).clears);
}

TEST(Source, request_overwrites_all_then_nothing_is_read) {
  const Source source = Source::choose(Copies{frame(0), kSlot}, {.overwritten = true});
  EXPECT_EQ(source.from, From::nothing);
  EXPECT_FALSE(source.clears);
}

// A touch sees the frame before the request has overwritten it.
TEST(Source, touchable_extent_is_overwritten_then_the_frame_is_cleared) {
  EXPECT_TRUE(Source::choose(Copies{kSlot}, {.overwritten = true, .touchable = true}).clears);
}

}  // namespace
}  // namespace tiermem

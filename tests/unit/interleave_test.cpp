// The order of memories for the extents of an interleaved buffer.
#include "policy/interleave.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace tiermem {
namespace {

using Order = std::vector<std::uint8_t>;

Order order_of(const std::vector<std::uint64_t>& bandwidths) {
  return interleave_order(bandwidths);
}

TEST(Interleave, memories_get_extents_in_the_ratio_of_their_bandwidths) {
  EXPECT_EQ(order_of({100, 100}), (Order{0, 1}));
  EXPECT_EQ(order_of({102'400, 25'600}), (Order{0, 0, 1, 0, 0}));
  EXPECT_EQ(order_of({25'600, 51'200}), (Order{1, 0, 1}));
  EXPECT_EQ(order_of({300, 100, 200}).size(), 6u);
  EXPECT_EQ(order_of({250, 100}), order_of({300, 100})) << "half an extent is rounded up";
}

TEST(Interleave, bandwidth_is_unknown_then_all_memories_get_the_same_share) {
  EXPECT_EQ(order_of({102'400, 0, 8192}), (Order{0, 1, 2}));
  EXPECT_EQ(order_of({0}), Order{0});
  EXPECT_TRUE(order_of({}).empty());
}

TEST(Interleave, memory_is_a_thousand_times_slower_then_it_still_gets_one_extent_in_some_tens) {
  const Order order = order_of({1'000'000, 1000});
  EXPECT_EQ(std::count(order.begin(), order.end(), 1), 1);
  EXPECT_EQ(order.size(), kLongestInterleave / 2 + 1);
}

RC_GTEST_PROP(Interleave, each_part_of_the_order_has_each_share_to_within_one_extent, ()) {
  const auto bandwidths = *rc::gen::container<std::vector<std::uint64_t>>(
      *rc::gen::inRange(1, 9), rc::gen::inRange<std::uint64_t>(1, 20'000));
  const Order order = order_of(bandwidths);
  RC_ASSERT(!order.empty() && order.size() <= kLongestInterleave);
  for (std::size_t memory = 0; memory < bandwidths.size(); ++memory) {
    const auto all = std::count(order.begin(), order.end(), memory);
    RC_ASSERT(all >= 1);
    std::int64_t so_far = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      so_far += order[i] == memory ? 1 : 0;
      const double due =
          static_cast<double>(all) * static_cast<double>(i + 1) / static_cast<double>(order.size());
      RC_ASSERT(std::abs(static_cast<double>(so_far) - due) <=
                static_cast<double>(bandwidths.size()));
    }
  }
}

}  // namespace
}  // namespace tiermem

// The order in which extents give up their slots.
#include "policy/slot_order.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tiermem {
namespace {

std::vector<ExtentRef> all(const SlotOrder& order) {
  std::vector<ExtentRef> list;
  for (ExtentRef ref = order.first(); ref != kNoLink; ref = order.after(ref)) {
    list.push_back(ref);
  }
  return list;
}

using Refs = std::vector<ExtentRef>;

TEST(SlotOrder, extents_are_added_then_the_earliest_is_the_first) {
  SlotOrder order;
  EXPECT_EQ(order.first(), kNoLink);
  for (const ExtentRef ref : {7u, 3u, 900u}) {
    EXPECT_TRUE(order.add(ref));
  }
  EXPECT_EQ(all(order), (Refs{7, 3, 900}));
}

TEST(SlotOrder, extent_is_added_again_then_it_is_the_last) {
  SlotOrder order;
  order.add(1);
  order.add(2);
  order.add(1);
  EXPECT_EQ(all(order), (Refs{2, 1}));
}

TEST(SlotOrder, extent_is_removed_then_the_others_stay_in_order) {
  SlotOrder order;
  for (const ExtentRef ref : {1u, 2u, 3u}) {
    order.add(ref);
  }
  order.remove(2);
  order.remove(2);
  order.remove(5000);
  EXPECT_EQ(all(order), (Refs{1, 3}));
  EXPECT_FALSE(order.has(2));
  EXPECT_TRUE(order.has(3));
}

}  // namespace
}  // namespace tiermem

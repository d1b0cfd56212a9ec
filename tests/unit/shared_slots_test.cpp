// Which slots a child of fork still reads, by the rule, for every order of ends.
#include "mover/shared_slots.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tiermem {
namespace {

struct SharedSlotsTest : ::testing::Test {
  std::set<std::uint64_t> freed_by_end_of(std::uint32_t child) {
    std::set<std::uint64_t> freed;
    slots.ended(child, [&](SlotId slot) { freed.insert(slot.value); });
    return freed;
  }
  using Set = std::set<std::uint64_t>;
  SharedSlots slots;
};

TEST_F(SharedSlotsTest, without_a_fork_everything_is_free_at_once) {
  EXPECT_FALSE(slots.is_shared(slots.stamp()));
  EXPECT_TRUE(slots.give_up({1}, slots.stamp()));
  EXPECT_TRUE(slots.kept().empty());
}

TEST_F(SharedSlotsTest, what_a_child_reads_is_kept_until_it_ends) {
  const std::uint32_t before = slots.stamp();
  const std::uint32_t child = slots.parent_of_child();
  EXPECT_TRUE(slots.is_shared(before));
  EXPECT_FALSE(slots.give_up({1}, before));
  EXPECT_FALSE(slots.is_shared(slots.stamp())) << "allocated since";
  EXPECT_TRUE(slots.give_up({2}, slots.stamp()));
  EXPECT_EQ(freed_by_end_of(child), Set({1}));
  EXPECT_FALSE(slots.is_shared(before));
}

TEST_F(SharedSlotsTest, the_last_child_that_reads_a_slot_decides) {
  const std::uint32_t oldest = slots.stamp();
  const std::uint32_t first = slots.parent_of_child();
  const std::uint32_t middle = slots.stamp();
  EXPECT_FALSE(slots.give_up({1}, oldest));  // Only the first child reads it.
  const std::uint32_t second = slots.parent_of_child();
  EXPECT_FALSE(slots.give_up({2}, oldest));  // Both children read it.
  EXPECT_FALSE(slots.give_up({3}, middle));  // Only the second child reads it.
  EXPECT_EQ(freed_by_end_of(first), Set({1}));
  EXPECT_EQ(freed_by_end_of(second), Set({2, 3}));
  EXPECT_TRUE(slots.kept().empty());
}

TEST_F(SharedSlotsTest, a_later_child_may_end_first) {
  const std::uint32_t oldest = slots.stamp();
  const std::uint32_t first = slots.parent_of_child();
  const std::uint32_t middle = slots.stamp();
  const std::uint32_t second = slots.parent_of_child();
  EXPECT_FALSE(slots.give_up({1}, oldest));
  EXPECT_FALSE(slots.give_up({2}, middle));
  EXPECT_EQ(freed_by_end_of(second), Set({2}));
  EXPECT_FALSE(slots.is_shared(middle));
  EXPECT_TRUE(slots.is_shared(oldest));
  EXPECT_EQ(freed_by_end_of(first), Set({1}));
}

TEST_F(SharedSlotsTest, to_a_child_the_parents_slots_are_for_reading) {
  const std::uint32_t before = slots.stamp();
  (void)slots.parent_of_child();
  EXPECT_FALSE(slots.give_up({1}, before));
  slots.child_of_parent();
  EXPECT_TRUE(slots.kept().empty()) << "its parent's business";
  EXPECT_TRUE(slots.is_shared(before));
  EXPECT_FALSE(slots.give_up({2}, before)) << "not its own to free";
  EXPECT_TRUE(slots.kept().empty());
  const std::uint32_t own = slots.stamp();
  EXPECT_FALSE(slots.is_shared(own));
  const std::uint32_t grandchild = slots.parent_of_child();
  EXPECT_FALSE(slots.give_up({3}, own));
  EXPECT_EQ(freed_by_end_of(grandchild), Set({3}));
  EXPECT_TRUE(slots.is_shared(before)) << "for ever";
}

TEST_F(SharedSlotsTest,
       the_last_fork_that_can_be_counted_is_as_the_others_and_the_next_is_refused) {
  slots.test_begin_at(SharedSlots::kMostForks - 2);
  const std::uint32_t oldest = slots.stamp();
  const std::uint32_t first = slots.parent_of_child();
  EXPECT_FALSE(slots.is_full());
  const std::uint32_t middle = slots.stamp();
  const std::uint32_t last = slots.parent_of_child();
  EXPECT_TRUE(slots.is_full());
  EXPECT_TRUE(slots.is_shared(oldest));
  EXPECT_TRUE(slots.is_shared(middle));
  EXPECT_FALSE(slots.is_shared(slots.stamp())) << "allocated since";
  EXPECT_FALSE(slots.give_up({1}, oldest));
  EXPECT_FALSE(slots.give_up({2}, middle));
  EXPECT_EQ(freed_by_end_of(last), Set({2}));
  EXPECT_EQ(freed_by_end_of(first), Set({1}));
}

}  // namespace
}  // namespace tiermem

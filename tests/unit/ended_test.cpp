// The list of ends: what is taken, in which order, and with which numbers.
#include "mover/ended.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace tiermem {
namespace {

TEST(EndedList, ends_are_taken_once_in_the_order_in_which_they_came) {
  EndedList list;
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.take().empty());
  list.add({.ref = 7});
  list.add({.ref = 3, .failed = Ended::Failed::to_leave, .error = fail(Code::io_error, "no")});
  EXPECT_FALSE(list.empty());
  const std::span<const Ended> taken = list.take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].ref, 7u);
  EXPECT_TRUE(taken[0].error.ok());
  EXPECT_EQ(taken[1].ref, 3u);
  EXPECT_EQ(taken[1].error.code(), Code::io_error);
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.take().empty());
}

TEST(EndedList, an_end_that_is_added_while_others_are_looked_at_comes_with_the_next_call) {
  EndedList list;
  list.add({.ref = 1});
  const std::span<const Ended> taken = list.take();
  list.add({.ref = 2});
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].ref, 1u);
  ASSERT_EQ(list.take().size(), 1u);
}

TEST(EndedList, a_waiter_is_older_than_the_ends_that_wake_it) {
  EndedList list;
  list.add({.ref = 1});
  const std::uint64_t since = list.count();  // A waiter comes between the two ends.
  list.add({.ref = 1});
  const std::span<const Ended> taken = list.take();
  EXPECT_LE(taken[0].number, since);
  EXPECT_GT(taken[1].number, since);
}

TEST(EndedList, ends_that_were_not_taken_are_a_reason_to_step_at_once) {
  EndedList list;
  EXPECT_EQ(list.next(5), kNever);
  list.add({.ref = 1});
  EXPECT_EQ(list.next(5), 5);
  (void)list.take();
  EXPECT_EQ(list.next(5), kNever);
}

}  // namespace
}  // namespace tiermem

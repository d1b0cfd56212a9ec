// Extents that could not leave: when they are tried again, and how long requests wait for that.
#include "mover/stuck.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::int64_t kRetry = 10'000'000;
constexpr std::int64_t kMost = 10'000'000'000;
constexpr std::int64_t kAdmitted = 1;  // The request that waits.

TEST(Stuck, nothing_is_tried_again_before_an_extent_is_stuck) {
  const Stuck stuck;
  EXPECT_FALSE(stuck.is_stuck(Extent{}, 5));
  EXPECT_FALSE(stuck.retries(kAdmitted, false, 5));
  EXPECT_EQ(stuck.next(5), kNever);
}

TEST(Stuck, the_kernel_keeps_an_extent_then_it_is_tried_again_after_a_pause) {
  Stuck stuck;
  Extent extent{};
  stuck.kept(extent, 5);
  EXPECT_TRUE(stuck.is_stuck(extent, 5 + kRetry - 1));
  EXPECT_FALSE(stuck.is_stuck(extent, 5 + kRetry));
  EXPECT_FALSE(stuck.is_stuck(Extent{}, 5)) << "others can leave";
  EXPECT_TRUE(stuck.retries(kAdmitted, false, 5));
  EXPECT_FALSE(stuck.retries(kAdmitted, false, 5 + kRetry));
  EXPECT_EQ(stuck.next(5), 5 + kRetry);
}

TEST(Stuck, the_kernel_keeps_extents_for_long_then_requests_do_not_wait) {
  Stuck stuck;
  Extent extent{};
  stuck.kept(extent, 5);
  stuck.kept(extent, 5 + kMost);
  EXPECT_FALSE(stuck.retries(kAdmitted, false, 5 + kMost));
  stuck.let_go(extent);
  EXPECT_FALSE(extent.stuck);
  stuck.kept(extent, 6 + kMost);
  EXPECT_TRUE(stuck.retries(kAdmitted, false, 6 + kMost)) << "counted from the last time it let go";
}

TEST(Stuck, pages_are_unread_then_a_request_waits_for_one_more_try) {
  Stuck stuck;
  Extent extent{};
  stuck.note_rereads(0);
  stuck.unread(extent, 5);
  EXPECT_TRUE(stuck.is_stuck(extent, 5));
  EXPECT_TRUE(stuck.retries(kAdmitted, false, 6));
  stuck.note_rereads(6);
  EXPECT_TRUE(stuck.retries(kAdmitted, false, 6)) << "not tried yet";
  stuck.note_rereads(5 + kRetry);
  stuck.unread(extent, 6 + kRetry);
  EXPECT_FALSE(stuck.retries(kAdmitted, false, 6 + kRetry));
  EXPECT_TRUE(stuck.retries(6 + kRetry, false, 6 + kRetry)) << "a request that came after it";
}

TEST(Stuck, slots_come_then_an_extent_that_lacks_one_is_tried_soon) {
  Stuck stuck;
  Extent extent{};
  stuck.lacks_slot(extent, 100 * kRetry);
  EXPECT_TRUE(stuck.is_stuck(extent, 50 * kRetry));
  EXPECT_TRUE(stuck.retries(kAdmitted, false, 5));
  EXPECT_FALSE(stuck.retries(kAdmitted, true, 5)) << "writes are paused: it finds none";
  stuck.slots_came(5);
  EXPECT_EQ(stuck.until(), 5 + kRetry);
  EXPECT_FALSE(stuck.is_stuck(extent, 5 + kRetry));
}

}  // namespace
}  // namespace tiermem

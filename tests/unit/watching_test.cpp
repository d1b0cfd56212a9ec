// Which extents come watched.
#include "policy/watching.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::uint32_t kFollower = 33;

void leave(Watching& watching, unsigned rounds, unsigned written_of_16) {
  Watching::Memory any = 0;
  for (unsigned i = 0; i < rounds * 64; ++i) {
    watching.left(any, i % 16 < written_of_16);
  }
}

TEST(Watching, a_new_extent_is_not_watched_and_one_that_left_unwritten_is) {
  const Watching watching;
  Watching::Memory extent = 0;
  EXPECT_FALSE(watching.watches(kFollower, extent));
  Watching::note(extent, false);
  EXPECT_TRUE(watching.watches(kFollower, extent));
  Watching::note(extent, true);
  EXPECT_FALSE(watching.watches(kFollower, extent)) << "written";
}

TEST(Watching, where_nothing_is_written_all_are) {
  Watching watching;
  leave(watching, 1, 0);
  EXPECT_TRUE(watching.watches(kFollower, 0));
}

TEST(Watching, where_much_is_written_only_those_that_were_not_for_long_and_one_of_32) {
  Watching watching;
  leave(watching, 20, 16);
  EXPECT_FALSE(watching.watches(kFollower, Watching::kMost - 1));
  EXPECT_TRUE(watching.watches(kFollower, Watching::kMost));
  EXPECT_TRUE(watching.watches(64, 0));
  leave(watching, 20, 0);
  EXPECT_TRUE(watching.watches(kFollower, 0)) << "the program does something else now";
}

TEST(Watching, a_tenth_changes_nothing) {
  Watching watching;
  leave(watching, 20, 2);
  EXPECT_FALSE(watching.watches(kFollower, 0));
  EXPECT_TRUE(watching.watches(kFollower, 1));
}

TEST(Watching, a_few_decide_nothing) {
  Watching watching;
  Watching::Memory any = 0;
  for (unsigned i = 0; i < 63; ++i) {
    watching.left(any, false);
  }
  EXPECT_FALSE(watching.watches(kFollower, 0));
}

TEST(Watching, counts_no_further_than_it_remembers) {
  Watching::Memory extent = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    Watching::note(extent, false);
  }
  EXPECT_EQ(extent, Watching::kMost);
}

}  // namespace
}  // namespace tiermem

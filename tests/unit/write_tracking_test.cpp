// Which extents arrive watched.
#include "policy/write_tracking.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tiermem {
namespace {

constexpr std::uint32_t kFollower = 33;

void leave(WriteTracking& watching, unsigned rounds, unsigned written_of_16) {
  WriteTracking::Memory any = 0;
  for (unsigned i = 0; i < rounds * 64; ++i) {
    watching.left(any, i % 16 < written_of_16);
  }
}

TEST(WriteTracking, a_new_extent_is_not_watched_and_one_that_left_unwritten_is) {
  const WriteTracking watching;
  WriteTracking::Memory extent = 0;
  EXPECT_FALSE(watching.watches(kFollower, extent));
  WriteTracking::note(extent, false);
  EXPECT_TRUE(watching.watches(kFollower, extent));
  WriteTracking::note(extent, true);
  EXPECT_FALSE(watching.watches(kFollower, extent)) << "written";
}

TEST(WriteTracking, where_nothing_is_written_all_are) {
  WriteTracking watching;
  leave(watching, 1, 0);
  EXPECT_TRUE(watching.watches(kFollower, 0));
}

TEST(WriteTracking, where_much_is_written_only_those_that_were_not_for_long_and_one_of_32) {
  WriteTracking watching;
  leave(watching, 20, 16);
  EXPECT_FALSE(watching.watches(kFollower, WriteTracking::kMost - 1));
  EXPECT_TRUE(watching.watches(kFollower, WriteTracking::kMost));
  EXPECT_TRUE(watching.watches(64, 0));
  leave(watching, 20, 0);
  EXPECT_TRUE(watching.watches(kFollower, 0)) << "the program does something else now";
}

TEST(WriteTracking, a_tenth_changes_nothing) {
  WriteTracking watching;
  leave(watching, 20, 2);
  EXPECT_FALSE(watching.watches(kFollower, 0));
  EXPECT_TRUE(watching.watches(kFollower, 1));
}

TEST(WriteTracking, a_few_decide_nothing) {
  WriteTracking watching;
  WriteTracking::Memory any = 0;
  for (unsigned i = 0; i < 63; ++i) {
    watching.left(any, false);
  }
  EXPECT_FALSE(watching.watches(kFollower, 0));
}

/// Runs rounds of 64 extents, of which the given numbers are written. Returns the least number of
/// times that an extent must then have left unwritten to be watched.
unsigned least_after(std::initializer_list<unsigned> written_of_64) {
  WriteTracking watching;
  for (const unsigned written : written_of_64) {
    WriteTracking::Memory any = 0;
    for (unsigned i = 0; i < 64; ++i) {
      watching.left(any, i < written);
    }
  }
  unsigned least = 0;
  while (!watching.watches(kFollower, static_cast<WriteTracking::Memory>(least))) {
    ++least;
  }
  return least;
}

TEST(WriteTracking, more_than_a_quarter_written_doubles_and_less_than_a_sixteenth_halves) {
  EXPECT_EQ(least_after({}), 1u);
  EXPECT_EQ(least_after({16}), 1u) << "a quarter";
  EXPECT_EQ(least_after({17}), 3u);
  EXPECT_EQ(least_after({17, 17}), 7u);
  EXPECT_EQ(least_after({64, 64, 64}), 15u);
  EXPECT_EQ(least_after({64, 64, 64, 64}), 31u);
  EXPECT_EQ(least_after({64, 64, 64, 64, 64}), 31u) << "as far as an extent's memory goes";
  EXPECT_EQ(least_after({17, 4}), 3u) << "a sixteenth";
  EXPECT_EQ(least_after({17, 3}), 1u);
  EXPECT_EQ(least_after({17, 3, 3}), 0u);
  EXPECT_EQ(least_after({3, 17}), 1u) << "from none to one again";
}

TEST(WriteTracking, a_round_is_64_and_the_next_begins_anew) {
  WriteTracking watching;
  WriteTracking::Memory any = 0;
  for (unsigned i = 0; i < 63; ++i) {
    watching.left(any, true);
  }
  EXPECT_TRUE(watching.watches(kFollower, 1));
  watching.left(any, true);
  EXPECT_FALSE(watching.watches(kFollower, 1));
  EXPECT_FALSE(watching.watches(kFollower, 2));
  EXPECT_TRUE(watching.watches(kFollower, 3));
  for (unsigned i = 0; i < 64; ++i) {  // Writes of the last round do not count.
    watching.left(any, i < 5);
  }
  EXPECT_FALSE(watching.watches(kFollower, 2));
}

TEST(WriteTracking, a_write_is_remembered_of_its_extent_alone) {
  WriteTracking watching;
  WriteTracking::Memory one = 5, other = 5;
  watching.left(one, true);
  watching.left(other, false);
  EXPECT_EQ(one, 0);
  EXPECT_EQ(other, 6);
  for (std::uint32_t extent = 0; extent < 128; ++extent) {
    EXPECT_EQ(watching.watches(extent, 0), extent % 32 == 0) << extent;
  }
}

TEST(WriteTracking, counts_no_further_than_it_remembers) {
  WriteTracking::Memory extent = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    WriteTracking::note(extent, false);
  }
  EXPECT_EQ(extent, WriteTracking::kMost);
}

}  // namespace
}  // namespace tiermem

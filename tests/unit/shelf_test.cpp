// The records of a store.
#include "store/shelf.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tiermem {
namespace {

TEST(Shelf, drops_objects_when_it_has_the_most_that_it_can_have) {
  constexpr std::size_t kMost = 100;
  Shelf shelf(std::uint64_t{1} << 40, kMost);
  Vector<Handle> gone;
  for (Handle buffer = 1; buffer <= 3 * kMost; ++buffer) {
    ASSERT_TRUE(shelf.reserve(1, gone)) << "object " << buffer;
    EXPECT_EQ(shelf.add("key " + std::to_string(buffer), buffer, 1), 0u);
  }
  StoreStats stats;
  shelf.count_into(stats);
  EXPECT_LE(stats.objects, kMost);
  EXPECT_EQ(stats.objects + gone.size(), 3 * kMost);
  EXPECT_EQ(stats.used, stats.objects * 4096);
}

TEST(Shelf, gives_back_the_room_of_an_object_that_was_not_stored) {
  Shelf shelf(8192, 2);
  Vector<Handle> gone;
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(shelf.reserve(8192, gone)) << "round " << round;
    EXPECT_FALSE(shelf.reserve(1, gone));
    shelf.cancel(8192);
  }
  EXPECT_FALSE(shelf.reserve(8193, gone));
  EXPECT_TRUE(gone.empty());
}

TEST(Shelf, knows_which_objects_were_read_a_short_while_ago) {
  Shelf shelf(1 << 20, 100);
  Vector<Handle> gone;
  for (Handle buffer = 1; buffer <= 10; ++buffer) {
    ASSERT_TRUE(shelf.reserve(4096, gone));
    (void)shelf.add("key " + std::to_string(buffer), buffer, 4096);
  }
  constexpr std::uint64_t kRecent = 4 * 4096;
  EXPECT_FALSE(shelf.note_read("key 1", kRecent));
  for (int i = 2; i <= 4; ++i) {
    EXPECT_FALSE(shelf.note_read("key " + std::to_string(i), kRecent));
  }
  EXPECT_TRUE(shelf.note_read("key 1", kRecent));
  for (int i = 5; i <= 8; ++i) {
    EXPECT_FALSE(shelf.note_read("key " + std::to_string(i), kRecent));
  }
  EXPECT_FALSE(shelf.note_read("key 1", kRecent));   // Five reads ago.
  EXPECT_FALSE(shelf.note_read("key 11", kRecent));  // There is no such object.
}

}  // namespace
}  // namespace tiermem

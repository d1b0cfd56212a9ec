#include "base/kept_descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tiermem {
namespace {

TEST(KeptDescriptors, are_told_from_others_until_they_are_closed) {
  const int other = open("/dev/null", O_RDONLY);
  const int kept = keep_descriptor(open("/dev/null", O_RDONLY));
  ASSERT_GE(kept, 0);
  EXPECT_TRUE(is_kept(kept));
  EXPECT_FALSE(is_kept(other));
  close_kept(kept);
  EXPECT_FALSE(is_kept(kept));
  EXPECT_EQ(fcntl(kept, F_GETFD), -1);
  EXPECT_EQ(keep_descriptor(-1), -1);
  EXPECT_FALSE(is_kept(-1));
  close_kept(-1);
  close(other);
}

TEST(KeptDescriptors, get_high_numbers_where_that_is_asked_for) {
  keep_descriptors_above(200);
  const int low = open("/dev/null", O_RDONLY);
  const int kept = keep_descriptor(low);
  EXPECT_GE(kept, 200);
  EXPECT_EQ(fcntl(low, F_GETFD), -1);
  EXPECT_EQ(fcntl(kept, F_GETFD), FD_CLOEXEC);
  close_kept(kept);
  keep_descriptors_above(1 << 30);  // Above the limit, so the descriptor keeps its number.
  const int stays = keep_descriptor(open("/dev/null", O_RDONLY));
  EXPECT_TRUE(stays >= 0 && stays < 200);
  close_kept(stays);
  keep_descriptors_above(0);
}

}  // namespace
}  // namespace tiermem

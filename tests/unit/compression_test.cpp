// Which extents are offered to a tier that compresses.
#include "policy/compression.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 64 << 10;

unsigned offered(Compression& policy, Compression::Shrinks& buffer, unsigned extents) {
  unsigned n = 0;
  for (unsigned i = 0; i < extents; ++i) {
    n += policy.offers(buffer) ? 1 : 0;
  }
  return n;
}

// Bytes go on to the next tier, and some are read in the same time.
void pass(Compression& policy, std::uint64_t bytes, std::uint64_t one_read_in) {
  for (std::uint64_t at = 0; at < bytes; at += kExtent) {
    policy.note_passed(kExtent);
    policy.note_read(one_read_in != 0 ? kExtent / one_read_in : 0);
  }
}

TEST(Compression, buffer_that_does_not_shrink_is_offered_once_in_sixteen_times) {
  Compression policy;
  Compression::Shrinks random, text;
  EXPECT_EQ(offered(policy, random, 100), 100u);
  for (unsigned i = 0; i < Compression::kPatience; ++i) {
    Compression::note_stored(random, kExtent, kExtent);
    Compression::note_stored(text, kExtent, kExtent / 3);
  }
  EXPECT_EQ(offered(policy, random, 160), 10u);
  EXPECT_EQ(offered(policy, text, 160), 160u) << "each buffer has its own answer";
  Compression::note_stored(random, kExtent, kExtent / 4 * 3);
  EXPECT_EQ(offered(policy, random, 160), 160u);
  Compression::note_stored(random, kExtent, kExtent / 4 * 3 + 1);
  EXPECT_EQ(offered(policy, random, 160), 160u) << "one failure is not enough";
}

TEST(Compression, bytes_that_only_pass_through_are_offered_once_in_sixteen_times) {
  Compression policy;
  Compression::Shrinks buffer;
  pass(policy, 64 << 20, 0);
  EXPECT_EQ(offered(policy, buffer, 160), 10u);
  pass(policy, 4 << 20, 4);
  EXPECT_EQ(offered(policy, buffer, 160), 160u) << "what is read again is of use";
  pass(policy, 64 << 20, 9);
  EXPECT_EQ(offered(policy, buffer, 160), 10u) << "one byte in nine is too few";
}

TEST(Compression, few_futile_windows_change_nothing) {
  Compression policy;
  Compression::Shrinks buffer;
  pass(policy, 16 << 20, 0);
  EXPECT_EQ(offered(policy, buffer, 160), 160u);
}

}  // namespace
}  // namespace tiermem

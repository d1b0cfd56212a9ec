// How many pages come with a touched one: what is touched all over comes whole soon, what is
// touched here and there comes by the page.
#include "policy/part_size.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tiermem {
namespace {

constexpr unsigned kPages = 16;
constexpr PageMask kAll = 0xFFFF;

TEST(PartSize, a_part_has_the_page_and_nothing_that_is_there) {
  PartSize size;
  PartSize::Memory memory;
  std::uint32_t random = 1;
  PageMask present = 0;
  for (int i = 0; i < 1000; ++i) {
    random = random * 1664525 + 1013904223;
    const unsigned page = random >> 20 & (kPages - 1);
    if ((present >> page & 1) != 0) {
      present = 0;  // It left.
    }
    const PageMask part = size.choose(memory, present, page, kPages);
    EXPECT_NE(part >> page & 1, 0u);
    EXPECT_EQ(part & present, 0u);
    EXPECT_EQ(part & ~kAll, 0u);
    present |= part;
  }
}

TEST(PartSize, neighbours_missed_soon_after_each_other_double_it) {
  PartSize size(0);
  PartSize::Memory memory;
  PageMask present = 0;
  unsigned misses = 0;
  for (unsigned page = 0; page < kPages; ++page) {
    if ((present >> page & 1) == 0) {
      present |= size.choose(memory, present, page, kPages);
      ++misses;
    }
  }
  EXPECT_EQ(present, kAll);
  EXPECT_LE(misses, 5u);
}

TEST(PartSize, an_extent_that_was_used_all_over_comes_whole_the_next_time) {
  PartSize size(0);
  PartSize::Memory memory;
  PageMask present = 0;
  for (unsigned page = 0; page < kPages; ++page) {
    if ((present >> page & 1) == 0) {
      present |= size.choose(memory, present, page, kPages);
    }
  }
  std::array<PartSize::Memory, 100> others{};
  for (PartSize::Memory& other : others) {
    (void)size.choose(other, 0, 3, kPages);
  }
  EXPECT_EQ(size.choose(memory, 0, 5, kPages), kAll);
}

// A thousand extents, each touched at one page now and then.
TEST(PartSize, single_touches_end_with_single_pages) {
  PartSize size;
  std::array<PartSize::Memory, 1000> extents{};
  std::uint64_t pages = 0;
  std::uint64_t misses = 0;
  for (unsigned round = 0; round < 24; ++round) {
    for (unsigned i = 0; i < extents.size(); ++i) {
      const PageMask part = size.choose(extents[i], 0, (i * 7 + round) % kPages, kPages);
      if (round >= 20) {
        pages += static_cast<unsigned>(std::popcount(part));
        ++misses;
      }
    }
  }
  EXPECT_LT(pages, misses * 3 / 2);
}

TEST(PartSize, extents_of_two_pages_and_of_thirty_two_are_whole_at_most) {
  for (const unsigned pages : {2u, 32u}) {
    PartSize size(5);
    PartSize::Memory memory;
    const PageMask part = size.choose(memory, 0, pages - 1, pages);
    EXPECT_EQ(part, static_cast<PageMask>((std::uint64_t{1} << pages) - 1));
  }
}

}  // namespace
}  // namespace tiermem

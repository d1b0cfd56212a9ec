// How many pages are read with a touched one. An extent touched in many places soon arrives whole;
// an extent with few touches arrives page by page.
#include "policy/part_size.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace tiermem {
namespace {

constexpr unsigned kPages = 16;
constexpr PageMask kAll = 0xFFFF;

// Returns the first extent from `from` on that is on this side of the duel.
std::uint32_t extent_that(PartSize::Side side, std::uint32_t from = 0) {
  while (PartSize::side_of(from) != side) {
    ++from;
  }
  return from;
}

const std::uint32_t kGrowing = extent_that(PartSize::kGrows);
const std::uint32_t kSingle = extent_that(PartSize::kAlone);
const std::uint32_t kOther = extent_that(PartSize::kFollows);

TEST(PartSize, a_part_has_the_page_and_nothing_that_is_there) {
  PartSize size;
  PartSize::Memory memory;
  std::uint32_t random = 1;
  PageMask present = 0;
  for (int i = 0; i < 1000; ++i) {
    random = random * 1664525 + 1013904223;
    const unsigned page = random >> 20 & (kPages - 1);
    if ((present >> page & 1) != 0) {
      present = 0;  // The extent has left.
    }
    const PageMask part = size.choose(memory, kGrowing, present, page, kPages);
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
      present |= size.choose(memory, kGrowing, present, page, kPages);
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
      present |= size.choose(memory, kGrowing, present, page, kPages);
    }
  }
  std::array<PartSize::Memory, 100> others{};
  for (PartSize::Memory& other : others) {
    (void)size.choose(other, kGrowing, 0, 3, kPages);
  }
  EXPECT_EQ(size.choose(memory, kGrowing, 0, 5, kPages), kAll);
}

// A thousand extents, each touched at one page from time to time.
TEST(PartSize, single_touches_end_with_single_pages) {
  PartSize size;
  std::array<PartSize::Memory, 1000> extents{};
  std::uint64_t pages = 0;
  std::uint64_t misses = 0;
  for (unsigned round = 0; round < 24; ++round) {
    for (unsigned i = 0; i < extents.size(); ++i) {
      const PageMask part = size.choose(extents[i], kGrowing, 0, (i * 7 + round) % kPages, kPages);
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
    const PageMask part = size.choose(memory, kGrowing, 0, pages - 1, pages);
    EXPECT_EQ(part, static_cast<PageMask>((std::uint64_t{1} << pages) - 1));
  }
}

// ---- The duel

// Extents behind a memory that holds only some of their pages. The page that arrived first leaves
// first.
class Buffer {
 public:
  Buffer(unsigned extents, std::size_t pages_that_fit)
      : memories_(extents), present_(extents), fits_(pages_that_fit) {}

  void touch(PartSize& size, std::uint32_t extent, unsigned page) {
    if ((present_[extent] >> page & 1) != 0) {
      return;
    }
    const PageMask part = size.choose(memories_[extent], extent, present_[extent], page, kPages);
    present_[extent] |= part;
    for (unsigned i = 0; i < kPages; ++i) {
      if ((part >> i & 1) != 0) {
        came_.emplace_back(extent, i);
      }
    }
    for (; came_.size() > fits_; came_.pop_front()) {
      present_[came_.front().first] &= static_cast<PageMask>(~(1u << came_.front().second));
    }
  }

 private:
  std::vector<PartSize::Memory> memories_;
  std::vector<PageMask> present_;
  std::deque<std::pair<std::uint32_t, unsigned>> came_;
  std::size_t fits_;
};

constexpr unsigned kExtents = 4096;

// Random runs of four pages: growing brings few pages that are not touched.
void touch_neighbours(PartSize& size, Buffer& buffer, unsigned runs) {
  std::minstd_rand random(1);
  for (unsigned i = 0; i < runs; ++i) {
    const auto extent = static_cast<std::uint32_t>(random() % kExtents);
    const auto first = static_cast<unsigned>(random() % (kPages / 4) * 4);
    for (unsigned page = first; page < first + 4; ++page) {
      buffer.touch(size, extent, page);
    }
  }
}

// Random objects of slightly more than a page.
void touch_pairs(PartSize& size, Buffer& buffer, unsigned objects) {
  std::minstd_rand random(1);
  for (unsigned i = 0; i < objects; ++i) {
    const auto extent = static_cast<std::uint32_t>(random() % kExtents);
    const auto page = static_cast<unsigned>(random() % (kPages - 1));
    buffer.touch(size, extent, page);
    buffer.touch(size, extent, page + 1);
  }
}

// Many extents with a few touched pages each, again and again within a short time. Misses in one
// extent follow each other soon, and the pages between them are not touched.
void touch_here_and_there(PartSize& size, Buffer& buffer, unsigned touches) {
  std::minstd_rand random(1);
  std::uint32_t first = 0;
  for (unsigned i = 0; i < touches; ++i) {
    if (i % 64 == 0) {
      first = static_cast<std::uint32_t>(random() % (kExtents - 16));
    }
    const std::uint32_t extent = first + static_cast<std::uint32_t>(random() % 16);
    const unsigned page = static_cast<unsigned>(random() % 4 * 5 + extent) % kPages;
    buffer.touch(size, extent, page);
  }
}

TEST(PartSize, of_32_extents_one_takes_each_side_wherever_one_looks) {
  for (const std::uint32_t step : {1u, 2u, 16u, 31u, 512u}) {
    std::array<int, 4> sides{};
    for (std::uint32_t i = 0; i < 32 * 64; ++i) {
      ++sides[PartSize::side_of(7 + i * step)];
    }
    EXPECT_NEAR(sides[PartSize::kAlone], 64, 32) << "every " << step;
    EXPECT_NEAR(sides[PartSize::kNext], 64, 32) << "every " << step;
    EXPECT_NEAR(sides[PartSize::kGrows], 64, 32) << "every " << step;
  }
}

TEST(PartSize, who_takes_a_side_stays_on_it) {
  PartSize size(2);
  PartSize::Memory single;
  PartSize::Memory growing;
  for (unsigned page = 0; page < 4; ++page) {
    EXPECT_EQ(size.choose(single, kSingle, 0, page, kPages), 1u << page);
  }
  const std::uint32_t paired = extent_that(PartSize::kNext);
  PartSize::Memory pair;
  EXPECT_EQ(size.choose(pair, paired, 0, 5, kPages), 0b11u << 5);
  EXPECT_EQ(size.choose(pair, paired, 1u << 6, 5, kPages), 1u << 5);
  EXPECT_EQ(size.choose(pair, paired, 0, kPages - 1, kPages), 1u << (kPages - 1));
  EXPECT_EQ(size.choose(growing, kGrowing, 0, 5, kPages), 0xF0);
  EXPECT_EQ(size.choose(growing, kGrowing, 0xF0, 3, kPages), 0x0F);
  EXPECT_EQ(size.choose(growing, kGrowing, 0x0F, 4, kPages), 0xFFF0);
}

TEST(PartSize, the_others_grow_until_more_is_known_and_while_neighbours_are_used) {
  PartSize size;
  EXPECT_EQ(size.best(), PartSize::kGrows);
  PartSize::Memory memory;
  EXPECT_EQ(size.choose(memory, kOther, 0, 5, kPages), 0xF0);
  Buffer buffer(kExtents, kExtents * kPages / 2);
  touch_neighbours(size, buffer, 200'000);
  EXPECT_EQ(size.best(), PartSize::kGrows);
}

TEST(PartSize, the_others_get_the_next_page_too_where_objects_lie_across_two) {
  PartSize size;
  Buffer buffer(kExtents, kExtents * kPages / 4);
  touch_pairs(size, buffer, 400'000);
  EXPECT_EQ(size.best(), PartSize::kNext);
  PartSize::Memory memory;
  EXPECT_EQ(size.choose(memory, kOther, 0, 5, kPages), 0b11u << 5);
}

TEST(PartSize, the_others_get_single_pages_where_growing_brings_what_nobody_wants) {
  PartSize size;
  Buffer buffer(kExtents, kExtents * kPages / 16);
  touch_here_and_there(size, buffer, 400'000);
  EXPECT_EQ(size.best(), PartSize::kAlone);
  PartSize::Memory memory;
  EXPECT_EQ(size.choose(memory, kOther, 0, 5, kPages), 1u << 5);
  EXPECT_EQ(size.choose(memory, kOther, 1u << 5, 6, kPages), 1u << 6);
}

TEST(PartSize, a_program_that_changes_its_way_changes_the_others) {
  PartSize size;
  Buffer buffer(kExtents, kExtents * kPages / 16);
  touch_here_and_there(size, buffer, 400'000);
  ASSERT_EQ(size.best(), PartSize::kAlone);
  touch_neighbours(size, buffer, 100'000);
  EXPECT_EQ(size.best(), PartSize::kGrows);
}

}  // namespace
}  // namespace tiermem

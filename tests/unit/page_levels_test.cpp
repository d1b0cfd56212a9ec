// The pages of an extent in parts that stay at its turn. docs/decisions/terms.md has the figures of
// larger runs.
#include "policy/page_levels.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "policy/recency.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMemory = 1000;

struct Page {
  explicit Page(unsigned least = 0) : levels(least) {}
  // Leaves, and is missed after `away` pages have come.
  void leaves_for(std::uint32_t away) {
    levels.set_time(clock, kMemory);
    levels.left(memory, 0b1);
    clock += away;
    levels.set_time(clock, kMemory);
    levels.missed(memory, 0);
  }
  unsigned level() const { return memory.pages[0].level; }
  PageLevels levels;
  PageLevels::Memory memory{};
  std::uint32_t clock = 10;
};

TEST(PageLevels, a_page_that_returns_soon_rises_and_one_that_stays_away_falls) {
  Page page;
  page.levels.set_time(1, kMemory);
  page.levels.missed(page.memory, 0);
  EXPECT_EQ(page.level(), 0u) << "it has never left";
  for (const unsigned level : {1u, 2u, 3u, 3u}) {
    page.leaves_for(100);
    EXPECT_EQ(page.level(), level);
  }
  page.leaves_for(800);
  EXPECT_EQ(page.level(), 2u);
  page.leaves_for(1500);
  EXPECT_EQ(page.level(), 0u) << "two less for twice the time";
  page.leaves_for(100);
  page.leaves_for(9000);
  EXPECT_EQ(page.level(), 0u);
}

TEST(PageLevels, a_page_is_missed_twice_then_the_second_time_teaches_nothing) {
  Page page;
  page.leaves_for(100);
  page.levels.missed(page.memory, 0);
  EXPECT_EQ(page.level(), 1u);
}

TEST(PageLevels, a_page_stays_for_as_many_turns_as_its_level) {
  Page page;
  page.leaves_for(10);
  page.leaves_for(10);
  constexpr PageMask kPresent = 0b111;
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(PageLevels::without_turns(page.memory, kPresent), 0b110u);
    EXPECT_EQ(PageLevels::take_turn(page.memory, kPresent), 0b110u);
  }
  EXPECT_EQ(PageLevels::take_turn(page.memory, kPresent), kPresent);
  EXPECT_EQ(PageLevels::take_turn(page.memory, 0b100), 0b100u);
}

TEST(PageLevels, turns_end_then_all_pages_leave_at_the_next_one) {
  Page page;
  page.leaves_for(10);
  PageLevels::end_turns(page.memory);
  EXPECT_EQ(PageLevels::take_turn(page.memory, 0b1), 0b1u);
  EXPECT_EQ(page.level(), 1u) << "it keeps its level";
}

TEST(PageLevels, most_misses_come_soon_then_no_page_stays) {
  PageLevels levels;
  std::vector<PageLevels::Memory> extents(100);
  std::uint32_t clock = 0;
  for (int round = 0; round < 20; ++round) {
    for (PageLevels::Memory& extent : extents) {
      levels.set_time(clock += 4, kMemory);
      levels.missed(extent, 0);
      levels.left(extent, 0b1);
    }
  }
  EXPECT_EQ(extents[50].pages[0].level, 0u);
}

// The clock wraps, and memories have any size.
TEST(PageLevels, time_is_measured_in_parts_of_any_memory) {
  for (const std::uint64_t pages :
       {std::uint64_t{100}, std::uint64_t{60'000}, std::uint64_t{1} << 28}) {
    for (const std::uint32_t begin : {1u, 0u - 50u, 0x7fff'ff00u}) {
      PageLevels levels;
      PageLevels::Memory memory{};
      std::uint32_t clock = begin;
      const auto leaves_for = [&](std::uint64_t away) {
        levels.set_time(clock, pages);
        levels.left(memory, 0b1);
        clock += static_cast<std::uint32_t>(away);
        levels.set_time(clock, pages);
        levels.missed(memory, 0);
      };
      leaves_for(pages / 2 + pages / 8);
      EXPECT_EQ(memory.pages[0].level, 0u) << pages;
      leaves_for(pages / 4);
      leaves_for(pages / 4);
      EXPECT_GE(memory.pages[0].level, begin == 0u - 50u ? 1u : 2u) << pages << " from " << begin;
    }
  }
}

/// Touches of pages in extents of 16, of which the order sees only the misses.
class Touches {
 public:
  Touches(std::uint32_t pages, std::size_t capacity, bool by_level)
      : capacity_(capacity), by_level_(by_level), parts_(pages / 16), levels_(pages / 16) {
    EXPECT_TRUE(order_.reserve(pages / 16).ok());
  }
  bool misses(std::uint32_t page) {
    const ExtentRef ref = page / 16;
    const PageMask bit = PageMask{1} << page % 16;
    if ((parts_[ref] & bit) != 0) {
      return false;
    }
    page_levels_.set_time(order_.clock(), order_.pool_units());
    page_levels_.missed(levels_[ref], page % 16);
    while (used_ >= capacity_) {
      leave();
    }
    const bool first = parts_[ref] == 0;
    parts_[ref] |= bit;
    ++used_;
    first ? order_.inserted(ref, bytes(ref)) : order_.grown(ref, bytes(ref));
    return true;
  }

 private:
  std::uint64_t bytes(ExtentRef ref) const {
    return static_cast<unsigned>(std::popcount(parts_[ref])) * Recency::kUnitBytes;
  }
  void leave() {
    Vector<Recency::Victim> victims;
    const auto probe = [&](ExtentRef ref) {
      return Recency::Candidate{true, false, false, static_cast<std::uint32_t>(bytes(ref))};
    };
    (void)order_.choose(1, 1, probe, victims);
    for (const Recency::Victim& victim : victims) {
      const ExtentRef ref = victim.ref;
      const PageMask leaving =
          by_level_ ? PageLevels::take_turn(levels_[ref], parts_[ref]) : parts_[ref];
      page_levels_.set_time(order_.clock(), order_.pool_units());
      page_levels_.left(levels_[ref], leaving);
      used_ -= static_cast<unsigned>(std::popcount(leaving));
      parts_[ref] &= ~leaving;
      parts_[ref] == 0 ? order_.removed(ref, true) : order_.passed(ref, bytes(ref));
      EXPECT_EQ(order_.bytes_of(ref), parts_[ref] == 0 ? 0 : bytes(ref));
    }
  }

  const std::size_t capacity_;
  const bool by_level_;
  Recency order_;
  PageLevels page_levels_;
  std::vector<PageMask> parts_;
  std::vector<PageLevels::Memory> levels_;
  std::size_t used_ = 0;
};

/// Returns the misses in per cent, without levels and with them, in the second half.
std::pair<double, double> misses_of(std::size_t capacity,
                                    const std::function<std::uint32_t(std::uint32_t)>& page) {
  constexpr std::uint32_t kPages = 16384, kTouches = 600'000;
  Touches whole(kPages, capacity, false), by_level(kPages, capacity, true);
  std::uint32_t without = 0, with = 0;
  for (std::uint32_t i = 0; i < kTouches; ++i) {
    const std::uint32_t touched = page(i) % kPages;
    const bool counts = i >= kTouches / 2;
    without += whole.misses(touched) && counts ? 1 : 0;
    with += by_level.misses(touched) && counts ? 1 : 0;
  }
  constexpr double kHalf = kTouches / 2 / 100.0;
  return {without / kHalf, with / kHalf};
}

TEST(PageLevels, a_hot_page_in_each_group_of_four_stays) {
  std::mt19937 random(1);
  const auto [without, with] = misses_of(6144, [&](std::uint32_t) -> std::uint32_t {
    return random() % 10 != 0 ? random() % 4096 * 4 + 1 : random() % 16384;
  });
  EXPECT_GE(without, 12);
  EXPECT_LE(with, 0.75 * without) << without;
}

TEST(PageLevels, touches_in_no_order_miss_as_before) {
  std::mt19937 random(2);
  const auto [without, with] =
      misses_of(8192, [&](std::uint32_t) -> std::uint32_t { return random() % 16384; });
  EXPECT_NEAR(with, without, 0.5);
}

TEST(PageLevels, a_loop_misses_little_more_than_before) {
  for (const std::size_t capacity : {12603u, 8192u, 4096u}) {
    const auto [without, with] =
        misses_of(capacity, [](std::uint32_t i) -> std::uint32_t { return i * 40503u; });
    EXPECT_LE(with, without + 2) << capacity;
  }
}

}  // namespace
}  // namespace tiermem

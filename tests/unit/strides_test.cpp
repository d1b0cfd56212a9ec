// Read-ahead of steps of equal width: pure decisions about sequences of touches.
#include "policy/strides.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kMost = 32;

/// A program that faults at each touch unless the page was read ahead.
struct Program {
  void touch(std::uint64_t offset, Handle buffer = 1, std::uint32_t thread = 1) {
    auto& pages = there[buffer];
    if (!pages.insert(offset / kPage).second) {
      return;
    }
    ++faults;
    const Strides::Ahead ahead =
        strides.touched({buffer, thread, rounds ? offset / kPage * kPage : offset, kBytes}, kMost);
    EXPECT_LE(ahead.skipped + ahead.count, kMost);
    for (std::uint32_t i = 0; i < ahead.count; ++i) {
      ASSERT_LT(ahead.at(i), kBytes);
      // A rounded address may lie anywhere in its page.
      for (std::uint64_t page = ahead.at(i) / kPage; page <= ahead.at(i) / kPage + rounds; ++page) {
        asked += pages.insert(page).second ? 1 : 0;
      }
    }
  }
  Strides strides;
  bool rounds = false;
  std::map<Handle, std::set<std::uint64_t>> there;
  std::uint64_t faults = 0, asked = 0;
};

TEST(Strides, a_column_is_read_ahead) {
  for (const std::uint64_t step : {std::uint64_t{3} * kPage, std::uint64_t{65536},
                                   std::uint64_t{40'008}, std::uint64_t{123'456}}) {
    Program program;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      program.touch(200 + i * step);
    }
    EXPECT_LT(program.faults, 60u) << step;
    EXPECT_GE(program.faults + program.asked, 1000u) << step;
    EXPECT_LE(program.faults + program.asked, 1000u + kMost) << step << ": no more than that";
  }
}

TEST(Strides, addresses_may_be_rounded_to_their_page) {
  Program program;
  program.rounds = true;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    program.touch(i * 40'008);
  }
  EXPECT_LT(program.faults, 100u);
}

TEST(Strides, a_walk_backwards_is_read_ahead_to_the_begin) {
  Program program;
  for (std::uint64_t i = 1000; i-- > 0;) {
    program.touch(i * 65536 + 65000);
  }
  EXPECT_LT(program.faults, 60u);
  EXPECT_LE(program.faults + program.asked, 1000u);
}

TEST(Strides, several_columns_take_turns) {
  Program program;
  for (std::uint64_t i = 0; i < 500; ++i) {
    program.touch(i * 100'000);
    program.touch((kBytes >> 1) + i * 70'000);
    program.touch(kBytes - 1 - i * 90'000);
    program.touch(i * 100'000, 2);
    program.touch(i * 50'000, 3, 2);
  }
  EXPECT_LT(program.faults, 300u) << "of 2500";
}

TEST(Strides, threads_do_not_make_steps_together) {
  Program program;
  for (std::uint64_t i = 0; i < 100; ++i) {
    program.touch(i * 100'000, 1, static_cast<std::uint32_t>(i));
  }
  EXPECT_EQ(program.asked, 0u);
}

TEST(Strides, random_touches_read_nothing_ahead) {
  Program program;
  std::mt19937_64 dice(1);
  for (int i = 0; i < 20'000; ++i) {
    program.touch(dice() % kBytes);
  }
  EXPECT_LT(program.asked, 50u) << "by chance";
}

TEST(Strides, the_end_of_the_buffer_is_the_end) {
  Program program;
  for (std::uint64_t i = 10; i-- > 0;) {
    program.touch(kBytes - 1 - i * (std::uint64_t{1} << 20));
  }
  EXPECT_LE(program.faults + program.asked, 10u);
}

// A request has a fixed cost, so each must be for many pages.
TEST(Strides, more_is_asked_for_when_half_of_it_is_behind) {
  constexpr std::uint64_t kSteps = 1000;
  Strides strides;
  std::uint64_t asked = 0, calls = 0;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    const Strides::Ahead ahead = strides.touched({1, 1, i * 65536, kBytes}, kMost);
    asked += ahead.count;
    calls += ahead.count != 0 ? 1 : 0;
  }
  EXPECT_GE(asked, kSteps - kMost);
  EXPECT_LE(calls, kSteps / (kMost / 2) + 10);
}

// The touches jump to the next column. Its stream is recognised after a few faults.
TEST(Strides, another_column_begins_a_stream_of_its_own) {
  Program program;
  for (std::uint64_t column = 0; column < 4; ++column) {
    const std::uint64_t before = program.faults;
    for (std::uint64_t row = 0; row < 500; ++row) {
      program.touch(column * 16 * kPage + row * (std::uint64_t{2} << 20));
    }
    EXPECT_LT(program.faults - before, 50u) << column;
  }
}

}  // namespace
}  // namespace tiermem

// Read-ahead of touches: pure decisions about sequences of extents.
#include "policy/streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint32_t kExtents = 1000;
constexpr std::uint32_t kMost = 16;

TEST(Streams, the_first_touch_reads_nothing_ahead) {
  Streams streams;
  EXPECT_EQ(streams.touched({1, 1, 5, kExtents}, kMost).count, 0u);
}

TEST(Streams, a_scan_is_read_ahead_without_gaps_or_repeats) {
  Streams streams;
  std::vector<int> asked(kExtents);
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    const Streams::Ahead ahead = streams.touched({1, 1, i, kExtents}, kMost);
    for (std::uint32_t k = 0; k < ahead.count; ++k) {
      ++asked.at(ahead.first + k);
    }
    if (ahead.count != 0) {
      EXPECT_GT(ahead.first, i);
      EXPECT_LE(ahead.first + ahead.count, i + 1 + kMost);
    }
  }
  EXPECT_EQ(asked[0] + asked[1], 0);
  EXPECT_TRUE(std::all_of(asked.begin() + 2, asked.end(), [](int n) { return n == 1; }));
}

// A scan faults only at extents that are still on their way.
TEST(Streams, the_window_doubles_up_to_the_most) {
  Streams streams;
  std::uint32_t at = 0, largest = 0;
  std::uint32_t until = 0;
  (void)streams.touched({1, 1, at, kExtents}, kMost);
  ++at;
  std::vector<std::uint32_t> counts;
  while (counts.size() < 8) {
    const Streams::Ahead ahead = streams.touched({1, 1, at, kExtents}, kMost);
    counts.push_back(ahead.count);
    largest = std::max(largest, ahead.count);
    until = std::max(until, ahead.first + ahead.count);
    at = until;  // The next fault is at the first extent that was not requested.
  }
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[1], 4u);
  EXPECT_EQ(largest, kMost);
}

TEST(Streams, random_touches_read_nothing_ahead) {
  Streams streams;
  std::mt19937_64 dice(1);
  std::uint32_t asked = 0;
  for (int i = 0; i < 10'000; ++i) {
    asked +=
        streams.touched({1, 1, static_cast<std::uint32_t>(dice() % 1'000'000), 1'000'000}, kMost)
            .count;
  }
  EXPECT_LT(asked, 20u);
}

// Down a column of an image, one pixel of each row: every extent in order, at any offset in it.
TEST(Streams, steps_over_rows_are_no_scan) {
  Streams streams;
  std::uint32_t asked = 0;
  std::uint32_t went_on = 0;
  constexpr std::uint64_t kExtent = 65536;
  for (const std::uint64_t row : {70'000, 96'000, 131'000}) {
    for (std::uint64_t i = 0, at = 0; at < kExtents * kExtent; ++i, at = i * row) {
      const Streams::Ahead ahead = streams.touched(
          {1, 1, static_cast<std::uint32_t>(at / kExtent), kExtents, at % kExtent < kExtent / 8},
          kMost);
      asked += ahead.count;
      went_on += ahead.goes_on ? 1 : 0;
    }
  }
  EXPECT_LT(asked, kExtents / 2);
  EXPECT_LT(went_on, kExtents / 2);
}

// A scan that begins in the middle of an extent is detected some extents later.
TEST(Streams, a_scan_may_begin_anywhere) {
  Streams streams;
  EXPECT_FALSE(streams.touched({1, 1, 7, kExtents, false}, kMost).goes_on);
  EXPECT_FALSE(streams.touched({1, 1, 8, kExtents, true}, kMost).goes_on);
  EXPECT_TRUE(streams.touched({1, 1, 9, kExtents, true}, kMost).goes_on);
  EXPECT_TRUE(streams.touched({1, 1, 10, kExtents, true}, kMost).goes_on);
}

TEST(Streams, threads_and_buffers_have_streams_of_their_own) {
  Streams streams;
  std::uint32_t asked = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (std::uint32_t thread = 1; thread <= 8; ++thread) {
      asked += streams.touched({thread % 2, thread, thread * 100 + i, kExtents}, kMost).count;
    }
  }
  EXPECT_GE(asked, 8u * 90);
  EXPECT_LE(asked, 8u * (100 + kMost));
}

/// The answer to a scan at each extent that it reaches: (first, count, goes on).
struct Told {
  std::uint32_t first, count;
  bool goes_on;
  friend bool operator==(const Told&, const Told&) = default;
};
std::vector<Told> scan(std::uint32_t from, std::uint32_t to, std::uint32_t of, std::uint32_t most) {
  Streams streams;
  std::vector<Told> all;
  for (std::uint32_t i = from; i < to; ++i) {
    const Streams::Ahead ahead = streams.touched({1, 1, i, of}, most);
    all.push_back({ahead.first, ahead.count, ahead.goes_on});
  }
  return all;
}

// The window is 2, 4, 8, ... extents. More are requested when half of it is left.
TEST(Streams, a_scan_asks_for_exactly_these) {
  std::vector<Told> expected(25, Told{0, 0, true});
  expected[0] = {0, 0, false};
  expected[1] = {2, 2, true};
  expected[2] = {4, 3, true};
  expected[4] = {7, 6, true};
  expected[8] = {13, 12, true};
  expected[16] = {25, 8, true};  // The maximum is 16 ahead of the touch.
  expected[24] = {33, 8, true};
  const std::vector<Told> told = scan(0, 25, kExtents, kMost);
  ASSERT_EQ(told.size(), expected.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i], expected[i])
        << i << ": " << told[i].first << ", " << told[i].count << ", " << told[i].goes_on;
  }
  EXPECT_EQ(scan(96, 98, 100, kMost)[1], (Told{98, 2, true}));
  EXPECT_EQ(scan(97, 99, 100, kMost)[1], (Told{99, 1, true})) << "the last one";
  EXPECT_EQ(scan(98, 100, 100, kMost)[1], (Told{0, 0, true})) << "nothing is left";
}

// Not before the newest touch, and not beyond the first extent that was not requested.
TEST(Streams, a_run_goes_on_from_any_extent_that_was_asked_for) {
  const auto after_scan = [](std::uint32_t index) {
    Streams streams;
    for (std::uint32_t i = 10; i < 13; ++i) {
      (void)streams.touched({1, 1, i, kExtents}, kMost);  // Requests 12 to 16.
    }
    return streams.touched({1, 1, index, kExtents}, kMost);
  };
  EXPECT_FALSE(after_scan(11).goes_on) << "behind it";
  EXPECT_FALSE(after_scan(12).goes_on) << "answered already";
  EXPECT_TRUE(after_scan(13).goes_on);
  EXPECT_TRUE(after_scan(16).goes_on);
  EXPECT_TRUE(after_scan(17).goes_on) << "the next one";
  EXPECT_FALSE(after_scan(18).goes_on) << "beyond";
}

TEST(Streams, of_many_runs_the_one_that_rested_longest_is_forgotten) {
  Streams streams;
  for (std::uint32_t thread = 1; thread <= 32; ++thread) {
    (void)streams.touched({1, thread, 0, kExtents}, kMost);
    (void)streams.touched({1, thread, 1, kExtents}, kMost);
  }
  (void)streams.touched({1, 1, 2, kExtents}, kMost);   // The first stream is now the newest.
  (void)streams.touched({1, 33, 0, kExtents}, kMost);  // Replaces thread 2's stream.
  EXPECT_FALSE(streams.touched({1, 2, 2, kExtents}, kMost).goes_on);  // Replaces thread 3's stream.
  EXPECT_TRUE(streams.touched({1, 1, 3, kExtents}, kMost).goes_on);
  EXPECT_TRUE(streams.touched({1, 4, 2, kExtents}, kMost).goes_on);
  EXPECT_FALSE(streams.touched({1, 3, 2, kExtents}, kMost).goes_on);
}

TEST(Streams, nothing_lies_beyond_the_end) {
  Streams streams;
  for (std::uint32_t i = 990; i < kExtents; ++i) {
    const Streams::Ahead ahead = streams.touched({1, 1, i, kExtents}, kMost);
    EXPECT_LE(ahead.first + ahead.count, kExtents);
  }
  EXPECT_EQ(streams.touched({1, 2, kExtents - 1, kExtents}, kMost).count, 0u);
  for (const std::uint32_t most : {0u, 1u}) {
    Streams small;
    (void)small.touched({1, 1, 0, 4}, most);
    EXPECT_LE(small.touched({1, 1, 1, 4}, most).count, most);
  }
}

}  // namespace
}  // namespace tiermem

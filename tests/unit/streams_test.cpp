// What is read ahead of touches: pure decisions about sequences of extents.
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

// Only where it meets extents that are still on their way does a scan fault.
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
    at = until;  // The next fault is at the first extent that was not asked for.
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

// Down a column of a picture, a pixel of each row: every extent in turn, and anywhere in it.
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

// One that began in the middle of an extent is found some extents later.
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

// Percentiles of known samples.
#include "observe/histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tiermem {
namespace {

TEST(Histogram, without_samples_every_percentile_is_0) {
  const Histogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0U);
  EXPECT_EQ(histogram.percentile(0.99), 0U);
  EXPECT_EQ(histogram.count(), 0U);
}

TEST(Histogram, small_values_are_exact) {
  Histogram histogram;
  for (std::uint64_t ns = 0; ns < 64; ++ns) {
    histogram.add(ns);
  }
  EXPECT_EQ(histogram.percentile(0), 0U);
  EXPECT_EQ(histogram.percentile(0.5), 32U);
  EXPECT_EQ(histogram.percentile(1), 63U);
  EXPECT_EQ(histogram.sum(), 63U * 64U / 2);
}

TEST(Histogram, one_slow_sample_in_a_hundred_is_above_the_99th_percentile) {
  Histogram histogram;
  for (int i = 0; i < 99; ++i) {
    histogram.add(1000);
  }
  histogram.add(1'000'000);
  EXPECT_LE(histogram.percentile(0.98), 1016U);
  EXPECT_EQ(histogram.percentile(0.99), 1'000'000U);
  EXPECT_EQ(histogram.worst(), 1'000'000U);
}

TEST(Histogram, the_largest_value_has_a_bucket) {
  Histogram histogram;
  histogram.add(~std::uint64_t{0});
  EXPECT_EQ(histogram.percentile(0.5), ~std::uint64_t{0});
}

// Property: every percentile equals the true order statistic or exceeds it by at most 1/64.
TEST(Histogram, percentiles_are_right_to_a_64th) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Histogram histogram;
    std::vector<std::uint64_t> samples(1 + random() % 2000);
    for (std::uint64_t& sample : samples) {
      sample = random() >> (random() % 64);
      histogram.add(sample);
    }
    std::sort(samples.begin(), samples.end());
    for (const double part : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999}) {
      const auto index = static_cast<std::size_t>(part * static_cast<double>(samples.size()));
      const std::uint64_t exact = samples[std::min(index, samples.size() - 1)];
      EXPECT_GE(histogram.percentile(part), exact) << part;
      EXPECT_LE(histogram.percentile(part) - exact, exact / 64 + 1) << part;
    }
  }
}

}  // namespace
}  // namespace tiermem

// Medians and their intervals, as the benchmarks use them. Small counts are compared with values
// computed by hand; random ones are checked by a property.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "bench/statistics.hpp"

namespace tiermem::bench {
namespace {

TEST(BenchStatistics, the_median_of_an_odd_count_is_the_middle_one) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({5}), 5);
}

TEST(BenchStatistics, the_median_of_an_even_count_is_between_the_two_in_the_middle) {
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(BenchStatistics, nothing_has_a_median_of_zero) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median_interval({}).high, 0);
}

// From the binomial distribution: 1 - 2 * P(X <= rank) is 0.969, 0.961, 0.961, 0.965, 0.959 and
// 0.957 here, and below 0.95 one rank further in.
TEST(BenchStatistics, the_rank_is_the_furthest_in_that_keeps_95_percent) {
  EXPECT_EQ(interval_rank(6), 0U);
  EXPECT_EQ(interval_rank(9), 1U);
  EXPECT_EQ(interval_rank(12), 2U);
  EXPECT_EQ(interval_rank(15), 3U);
  EXPECT_EQ(interval_rank(20), 5U);
  EXPECT_EQ(interval_rank(25), 7U);
}

TEST(BenchStatistics, too_few_samples_give_their_whole_range) {
  const Interval interval = median_interval({2, 9, 4});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.middle, 4);
  EXPECT_EQ(interval.high, 9);
}

TEST(BenchStatistics, nine_samples_leave_out_one_at_each_end) {
  const Interval interval = median_interval({9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.middle, 5);
  EXPECT_EQ(interval.high, 8);
}

TEST(BenchStatistics, a_wild_sample_does_not_move_the_interval) {
  const Interval interval = median_interval({1, 1, 1, 1, 1, 1, 1, 1, 1e9});
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 1);
}

// Property: over many draws from a skewed distribution, the interval holds its true median in at
// least 95 % of the cases, less four standard deviations of that count.
TEST(BenchStatistics, the_interval_holds_the_true_median_as_often_as_it_says) {
  const unsigned seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::exponential_distribution<double> draw(1);
  const double truth = std::log(2.0);
  const int trials = 4000;
  for (const std::size_t count : {9U, 15U, 31U}) {
    int held = 0;
    for (int trial = 0; trial < trials; ++trial) {
      std::vector<double> samples(count);
      for (double& sample : samples) {
        sample = draw(random);
      }
      const Interval interval = median_interval(samples);
      held += interval.low <= truth && truth <= interval.high ? 1 : 0;
    }
    EXPECT_GE(held, trials * 0.95 - 4 * std::sqrt(trials * 0.95 * 0.05)) << count << " samples";
  }
}

}  // namespace
}  // namespace tiermem::bench

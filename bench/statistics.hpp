// Medians and their 95 % intervals, by order statistics: no assumption about the distribution, and
// the same samples always give the same interval. Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tiermem::bench {

/// Whether it can be a part of a ratio: above zero and finite.
inline bool is_figure(double value) {
  return std::isfinite(value) && value > 0;
}

/// For an even number of samples: the mean of the middle two. 0 without samples.
inline double median(std::vector<double> samples) {
  if (samples.empty()) {
    return 0;
  }
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

/// Returns the rank r (from 0) for which [sorted[r], sorted[n-1-r]] contains the median of the
/// distribution with a probability of at least 95 %. Each sample lies below the median with
/// probability one half, so the ranks follow a binomial distribution. Fewer than 6 samples cannot
/// reach that probability, and the whole range is returned.
inline std::size_t interval_rank(std::size_t n) {
  double tail = 0;                                      // P(X <= r), X binomial(n, 1/2).
  double term = std::pow(0.5, static_cast<double>(n));  // P(X = r)
  std::size_t rank = 0;
  for (std::size_t r = 0; r < n / 2; ++r) {
    tail += term;
    if (2 * tail > 0.05) {
      break;
    }
    rank = r;
    // P(X = r + 1) from P(X = r).
    term *= static_cast<double>(n - r) / static_cast<double>(r + 1);
  }
  return rank;
}

struct Interval {
  double middle = 0, low = 0, high = 0;
};

inline Interval median_interval(std::vector<double> samples) {
  if (samples.empty()) {
    return {};
  }
  std::sort(samples.begin(), samples.end());
  const std::size_t rank = interval_rank(samples.size());
  return {median(samples), samples[rank], samples[samples.size() - 1 - rank]};
}

}  // namespace tiermem::bench

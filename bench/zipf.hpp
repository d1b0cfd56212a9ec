// Numbers by Zipf's law: the k-th most frequent one is as frequent as 1 / k to some power. Pure;
// any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace tiermem::bench {

/// The method of Gray and others, "Quickly generating billion-record synthetic databases", 1994.
/// The frequent numbers are spread over the range.
class Zipf {
 public:
  /// Numbers below `n`. If `n` is a power of two, each number has a rank of its own. `theta`, the
  /// power, is below 1.
  explicit Zipf(std::uint64_t n, double theta = 0.99) : n_(n), theta_(theta) {
    for (std::uint64_t i = 1; i <= n; ++i) {
      zeta_ += std::pow(static_cast<double>(i), -theta);
    }
    eta_ = (1 - std::pow(2.0 / static_cast<double>(n), 1 - theta)) /
           (1 - (1 + std::pow(0.5, theta)) / zeta_);
  }
  std::uint64_t operator()(std::mt19937_64& random) const {
    const double chance = static_cast<double>(random() >> 11) * 0x1p-53;
    const double share = chance * zeta_;
    std::uint64_t rank = 0;
    if (share >= 1 + std::pow(0.5, theta_)) {
      rank = static_cast<std::uint64_t>(static_cast<double>(n_) *
                                        std::pow(eta_ * chance - eta_ + 1, 1 / (1 - theta_)));
    } else if (share >= 1) {
      rank = 1;
    }
    // An odd factor modulo a power of two: each number once, with neighbours in rank far apart.
    return std::min(rank, n_ - 1) * 0x9e3779b97f4a7c15ULL % n_;
  }

 private:
  const std::uint64_t n_;
  const double theta_;
  double zeta_ = 0, eta_ = 0;
};

}  // namespace tiermem::bench

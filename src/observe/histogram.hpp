// A histogram of times in nanoseconds. Its buckets have a relative width of at most 1/64, so a
// percentile of any number of samples costs 30 KiB. Never allocates. One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tiermem {

class Histogram {
 public:
  void add(std::uint64_t ns) {
    ++counts_[bucket_of(ns)];
    ++count_;
    sum_ += ns;
    worst_ = ns > worst_ ? ns : worst_;
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t worst() const { return worst_; }
  /// Calls visit(upper end, samples) for each non-empty bucket, in ascending order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      if (counts_[bucket] != 0) {
        visit(end_of(bucket), counts_[bucket]);
      }
    }
  }
  /// Returns the upper end of the bucket below which `part` of the samples lie; 0 without samples.
  std::uint64_t percentile(double part) const {
    const auto wanted = static_cast<std::uint64_t>(part * static_cast<double>(count_));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      seen += counts_[bucket];
      if (seen > wanted || (seen == count_ && seen != 0)) {
        const std::uint64_t end = end_of(bucket);
        return end < worst_ ? end : worst_;
      }
    }
    return 0;
  }

 private:
  static constexpr unsigned kLog2Parts = 6;  // log2 of the number of buckets for each power of two.
  static constexpr std::uint64_t kParts = 1U << kLog2Parts;

  static std::size_t bucket_of(std::uint64_t ns) {
    if (ns < kParts) {
      return static_cast<std::size_t>(ns);
    }
    const auto power = static_cast<unsigned>(std::bit_width(ns)) - 1;  // At least kLog2Parts.
    const std::uint64_t part = (ns >> (power - kLog2Parts)) - kParts;
    return static_cast<std::size_t>((power - kLog2Parts + 1) * kParts + part);
  }
  static std::uint64_t end_of(std::size_t bucket) {
    if (bucket < kParts) {
      return bucket;
    }
    const unsigned shift = static_cast<unsigned>(bucket / kParts) - 1;
    return ((kParts + bucket % kParts + 1) << shift) - 1;
  }

  std::array<std::uint64_t, (64 - kLog2Parts + 1) * kParts> counts_{};
  std::uint64_t count_ = 0, sum_ = 0, worst_ = 0;
};

}  // namespace tiermem

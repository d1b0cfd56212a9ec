// The approximate number of recent requests for a block: a count-min sketch (Cormode and
// Muthukrishnan, 2005) of four rows. The counters are halved after ten times as many additions as
// the memory has blocks, so that old counts fade. The result is never below the true count since
// the last halving.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tiermem {

class FrequencySketch {
 public:
  static constexpr std::uint8_t kMost = 15;

  explicit FrequencySketch(std::uint32_t capacity)
      : shift_(64 - std::countr_zero(std::bit_ceil(std::max<std::uint64_t>(capacity, 16) * 4))),
        period_(std::max<std::uint64_t>(capacity, 16) * 10) {
    for (auto& row : rows_) {
      row.resize(std::size_t{1} << (64 - shift_));
    }
  }

  void add(std::uint32_t block) {
    // Only the smallest counters grow: the others are too large already because of other blocks.
    const std::uint8_t least = estimate(block);
    if (least < kMost) {
      for (unsigned row = 0; row < rows_.size(); ++row) {
        std::uint8_t& count = rows_[row][place(row, block)];
        count = std::max(count, static_cast<std::uint8_t>(least + 1));
      }
    }
    if (++added_ == period_) {
      halve();
    }
  }
  std::uint8_t estimate(std::uint32_t block) const {
    std::uint8_t least = kMost;
    for (unsigned row = 0; row < rows_.size(); ++row) {
      least = std::min(least, rows_[row][place(row, block)]);
    }
    return least;
  }

 private:
  /// Multiplicative hashing with an odd factor for each row; the high bits are the good ones.
  std::size_t place(unsigned row, std::uint32_t block) const {
    constexpr std::array<std::uint64_t, 4> kFactors = {0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F,
                                                       0x165667B19E3779F9, 0xD6E8FEB86659FD93};
    const std::uint64_t mixed = (block + 1) * kFactors[row];
    return static_cast<std::size_t>(((mixed ^ mixed >> 29) * kFactors[3 - row]) >> shift_);
  }
  void halve() {
    for (auto& row : rows_) {
      for (std::uint8_t& count : row) {
        count /= 2;
      }
    }
    added_ = 0;
  }

  int shift_;
  std::uint64_t period_, added_ = 0;
  std::array<std::vector<std::uint8_t>, 4> rows_;
};

}  // namespace tiermem

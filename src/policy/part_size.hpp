// How many pages come with a touched one. An extent that is touched here and there is better kept
// in parts: a page for each touch needs a sixteenth of the memory, and of the device's time. One
// that is touched all over is better brought whole. Which it is shows within some touches: pages of
// the same extent that are missed soon after each other are neighbours in use, and each such miss
// brings twice as many. What an extent needed last time it begins with next time.
//
// Whether the pages that come along are of use nobody sees: a page in its window is touched without
// us. So three ways duel (set dueling: Qureshi et al., Adaptive Insertion Policies, ISCA 2007): of
// 32 extents one always gets the missed page alone, one that page and the next (objects that are
// larger than a page or lie across two), one grows, and the others do what pays, by the misses that
// it saves for each page more that it brings: growing before the next page, that before none.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tier/tier.hpp"

namespace tiermem {

class PartSize {
 public:
  /// What is remembered of an extent. All-zero: nothing yet.
  struct Memory {
    std::uint32_t last = 0;    ///< The clock at its last miss.
    std::uint8_t begun = 0;    ///< Logarithm of the pages that its newest run of misses began with,
    std::uint8_t reached = 0;  ///< and of those that it has come to.
    std::uint8_t learned = 0;  ///< Where the next run begins,
    std::uint8_t runs = 0;     ///< after so many; stops at the largest number.
  };

  /// `usual`: the logarithm of the pages that come with the first miss of an extent, to begin with.
  explicit PartSize(unsigned usual = 2) : usual_(static_cast<int>(usual) * kOne + kOne / 2) {}

  /// The pages to bring for a miss of `page`, of `pages` in the extent (a power of two) with the
  /// number `extent`, while those in `present` are there. Contains `page`; none of it is in
  /// `present`.
  PageMask choose(Memory& memory, std::uint32_t extent, PageMask present, unsigned page,
                  unsigned pages) {
    ++clock_;
    const Side side = side_of(extent);
    const Side way = side == kFollows ? best_ : side;
    PageMask mask = PageMask{1} << page;
    if (way == kGrows) {
      mask = grow(memory, present, page, pages);
    } else if (way == kNext && page + 1 < pages) {
      mask |= (PageMask{2} << page) & ~present;
    }
    if (side != kFollows) {
      count(side, static_cast<std::uint32_t>(std::popcount(mask)));
    }
    return mask;
  }

  /// Where the run of an extent begins that nothing is known of.
  std::uint8_t usual() const { return static_cast<std::uint8_t>(usual_ / kOne); }
  enum Side : std::uint8_t { kAlone, kNext, kGrows, kFollows };
  /// What the extents do that take no side.
  Side best() const { return best_; }
  /// Before anything else: the clock, which wraps. An extent whose last miss was exactly 2^32
  /// misses ago is then taken for one that was missed just now, and more pages than needed come
  /// once.
  void test_begin_at(std::uint32_t clock) { clock_ = clock; }
  /// Spread evenly: neighbours, and every n-th, are on all of them.
  static Side side_of(std::uint32_t extent) {
    const std::uint32_t part = extent * 2654435761u >> 27;
    return part < kFollows ? static_cast<Side>(part) : kFollows;
  }

 private:
  static constexpr std::uint32_t kSoon = 64;  // Misses of the whole memory.
  static constexpr int kOne = 256;
  static constexpr std::uint32_t kRound = 768;  // Misses of all sides between two decisions.

  struct Score {
    std::uint32_t misses = 0;
    std::uint32_t pages = 0;
  };

  PageMask grow(Memory& memory, PageMask present, unsigned page, unsigned pages) {
    const auto most = static_cast<std::uint8_t>(std::countr_zero(pages));
    const bool goes_on = memory.runs != 0 && clock_ - memory.last <= kSoon;
    memory.last = clock_;
    if (goes_on) {
      memory.reached = static_cast<std::uint8_t>(std::min<unsigned>(memory.reached + 1u, most));
    } else {
      if (memory.runs != 0) {
        learn(memory);
      }
      if (memory.runs < UINT8_MAX) {
        ++memory.runs;
      }
      memory.begun = std::min(memory.runs > 1 ? memory.learned : usual(), most);
      memory.reached = memory.begun;
    }
    const unsigned group = 1u << memory.reached;
    const unsigned first = page & ~(group - 1);
    const auto mask = static_cast<PageMask>(((std::uint64_t{1} << group) - 1) << first);
    return mask & ~present;
  }

  // Against the page alone. A page more costs two thirds of a miss: little to read and land, but it
  // takes the place of another that may be missed in its turn. By measurement
  // (docs/decisions/extents-in-parts.md).
  bool pays(Side side) const {
    const std::int64_t saved = std::int64_t{scores_[kAlone].misses} - scores_[side].misses;
    const std::int64_t more = std::int64_t{scores_[side].pages} - scores_[kAlone].pages;
    return saved > 0 && saved * 3 >= more * 2;
  }

  // The older a miss, the less it counts: half with each decision.
  void count(Side side, std::uint32_t pages) {
    ++scores_[side].misses;
    scores_[side].pages += pages;
    if (++round_ < kRound) {
      return;
    }
    round_ = 0;
    best_ = pays(kGrows) ? kGrows : pays(kNext) ? kNext : kAlone;
    for (Score& score : scores_) {
      score.misses /= 2;
      score.pages /= 2;
    }
  }

  // A run that went on began too small. One that did not may have begun too large, which nothing
  // shows: now and then the next begins smaller, and goes on if that was wrong.
  void learn(Memory& memory) {
    const bool went_on = memory.reached > memory.begun;
    if (went_on) {
      memory.learned = memory.reached;
    } else {
      memory.learned = memory.begun;
      const std::uint32_t scattered = clock_ * 2654435761u;  // Steps of a loop are no rhythm in it.
      if (memory.begun > 0 && scattered >> 30 == 0) {
        --memory.learned;
      }
    }
    usual_ += (memory.learned * kOne + kOne / 2 - usual_) / 32;
  }

  std::uint32_t clock_ = 0;
  int usual_;
  Score scores_[kFollows];
  std::uint32_t round_ = 0;
  Side best_ = kGrows;
};

}  // namespace tiermem

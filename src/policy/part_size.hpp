// The number of pages that arrive with a touched one. An extent with sparse touches is better kept
// in parts: a page for each touch needs a sixteenth of the memory and of the device's time. A
// densely touched extent is better promoted as a whole. Some touches show which case applies.
// Misses of the same extent soon after each other show that its neighbouring pages are in use. Each
// such miss brings twice as many pages. An extent starts the next time with what it needed last
// time.
//
// The benefit of the additional pages cannot be observed, because a page in its window is touched
// without tiermem. So three strategies compete (set dueling: Qureshi et al., Adaptive Insertion
// Policies, ISCA 2007). One of 32 extents always gets the missed page alone. One gets that page and
// the next, for objects that are larger than a page or lie across two. One grows. The others use
// the best strategy, measured by the misses that it saves for each additional page. Growing is
// tried before the next page, and that before the page alone.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tier/frame.hpp"

namespace tiermem {

class PartSize {
 public:
  /// The history of an extent. All-zero: none yet.
  struct Memory {
    std::uint32_t last = 0;    ///< The clock at its last miss.
    std::uint8_t begun = 0;    ///< Logarithm of the pages at the start of its newest run of misses,
    std::uint8_t reached = 0;  ///< and of the pages that the run has reached.
    std::uint8_t learned = 0;  ///< Logarithm of the pages at the start of the next run,
    std::uint8_t runs = 0;     ///< after this many runs; stops at the max value.
  };

  /// `usual`: initial logarithm of the pages that arrive with the first miss of an extent.
  explicit PartSize(unsigned usual = 2) : usual_(static_cast<int>(usual) * kOne + kOne / 2) {}

  /// Returns the pages to bring for a miss of `page` in the extent with the number `extent`. The
  /// extent has `pages` pages, a power of two; those in `present` are present. The result contains
  /// `page`, and no page of `present`.
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

  /// Returns the start of a run for an extent without a history.
  std::uint8_t usual() const { return static_cast<std::uint8_t>(usual_ / kOne); }
  enum Side : std::uint8_t { kAlone, kNext, kGrows, kFollows };
  /// Returns the strategy of the extents that take no side.
  Side best() const { return best_; }
  /// Sets the clock, which wraps, before anything else. An extent with its last miss exactly 2^32
  /// misses ago seems to have been missed just now, and gets too many pages once.
  void test_begin_at(std::uint32_t clock) { clock_ = clock; }
  /// Spreads evenly: neighbours, and every n-th extent, are on all sides.
  static Side side_of(std::uint32_t extent) {
    const std::uint32_t part = extent * 2654435761u >> 27;
    return part < kFollows ? static_cast<Side>(part) : kFollows;
  }

 private:
  static constexpr std::uint32_t kSoon = 64;  // In misses of the whole memory.
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

  // Compares a side with the page alone. An additional page costs two thirds of a miss: it is cheap
  // to read and copy, but it takes the place of another page that may be missed in turn. Measured
  // in docs/decisions/extents-in-parts.md.
  bool pays(Side side) const {
    const std::int64_t saved = std::int64_t{scores_[kAlone].misses} - scores_[side].misses;
    const std::int64_t more = std::int64_t{scores_[side].pages} - scores_[kAlone].pages;
    return saved > 0 && saved * 3 >= more * 2;
  }

  // Older misses count less: their weight halves with each decision.
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

  // A run that continued began too small. A run that did not continue may have begun too large,
  // which no observation shows. So the next run sometimes begins smaller, and grows if that was
  // wrong.
  void learn(Memory& memory) {
    const bool went_on = memory.reached > memory.begun;
    if (went_on) {
      memory.learned = memory.reached;
    } else {
      memory.learned = memory.begun;
      // Scattered, so that the steps of a loop cause no rhythm.
      const std::uint32_t scattered = clock_ * 2654435761u;
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

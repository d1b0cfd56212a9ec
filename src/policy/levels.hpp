// The levels of things with hidden references, which leave memory and return: extents (recency.hpp)
// and pages (page_levels.hpp). One that returns soon after it left has been in use, and its level
// rises. If it stays away for longer, its level falls. If most return soon, the program repeats a
// loop that is larger than the memory, and all levels are 0. docs/decisions/terms.md has the
// figures.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>

namespace tiermem {

class Levels {
 public:
  static constexpr unsigned kMost = 3;

  /// Returns the level of what has returned, or comes for the first time. `level`: its level so
  /// far. `known`: it is known when it left; `away` is the size of all insertions since then.
  /// `size` is its own, and `memory` that of the memory.
  unsigned after_return(unsigned level, bool known, double away, double size, double memory) {
    const double term = kSoon * memory;
    const bool soon = known && away < term;
    if (soon) {
      level = std::min(level + 1, kMost);
    } else if (known) {  // One level less, and another one for each doubling.
      const unsigned less = away <= 2 * term ? 1 : away <= 4 * term ? 2 : kMost;
      level -= std::min(less, level);
    }
    soon_share_ +=
        std::min(1.0, size / std::max(1.0, kSoonWindow * memory)) * ((soon ? 1 : 0) - soon_share_);
    return soon_share_ >= kLoopShare ? 0 : level;
  }

 private:
  /// It has returned soon if it was away for less than this share of the memory.
  static constexpr double kSoon = 0.5;
  /// If this share returns soon, it is a loop. The share is an average over the insertions of
  /// kSoonWindow of the memory.
  static constexpr double kLoopShare = 0.6, kSoonWindow = 0.25;

  double soon_share_ = 0;
};

}  // namespace tiermem

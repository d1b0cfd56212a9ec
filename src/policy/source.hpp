// Source: which copy of an extent a promote reads. Values in, values out. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "policy/cost.hpp"

namespace tiermem {

struct Source {
  enum class From : std::uint8_t {
    nothing,  ///< No bytes come: the extent is zeros, or the request overwrites all of it.
    memory,   ///< The frame of another space.
    slot,     ///< The slot copy.
  };
  /// A copy that has the newest bytes.
  struct Copy {
    From from = From::slot;
    std::uint8_t space = 0;  ///< The space of a frame.
    Cost cost;               ///< The cost of reading it.
  };
  /// The purpose of the promote.
  struct Wanted {
    bool overwritten = false;  ///< The request overwrites all of the extent.
    bool touchable = false;    ///< The program can read the frame before that.
    bool vacant = false;       ///< The extent is for a spare buffer: its next owner clears it.
  };

  From from = From::nothing;
  std::uint8_t space = 0;  ///< The space of the frame that is read.
  bool clears = false;     ///< The frame is filled with zeros.

  /// Returns the cheapest of the copies: the first of those with the lowest cost.
  static Source choose(std::span<const Copy> copies, const Wanted& wanted) {
    if (wanted.overwritten) {
      return {.clears = wanted.touchable};
    }
    if (copies.empty()) {
      return {.clears = !wanted.vacant};
    }
    const Copy* best = &copies.front();
    for (const Copy& copy : copies.subspan(1)) {
      best = copy.cost < best->cost ? &copy : best;
    }
    return {.from = best->from, .space = best->space};
  }
};

}  // namespace tiermem

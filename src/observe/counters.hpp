// The names of the public counters, for code that prints them. Constant data; any thread.
#pragma once

#include <span>

#include "tiermem/types.hpp"

namespace tiermem {

struct Counter {
  const char* name;
  std::uint64_t Stats::*field;
};

/// Returns every counter of Stats, in its order; not the figures of tiers.
std::span<const Counter> counter_table();

}  // namespace tiermem

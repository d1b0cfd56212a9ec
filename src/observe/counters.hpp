// The names of the public counters, for whoever prints them. Constant data; any
// thread.
#pragma once

#include <span>

#include "tiermem/types.hpp"

namespace tiermem {

struct Counter {
  const char* name;
  std::uint64_t Stats::*field;
};

/// Every field of Stats, in its order.
std::span<const Counter> counter_table();

}  // namespace tiermem

// Liveness under contention: many callers, each of whom wants several extents again and again, and
// together many times the budget, all of which is in use. No faults. What is asked: nobody waits
// much longer than the others do.
#pragma once

#include <cstdint>

namespace tiermem::sim {

/// Of those that had to wait, from the request to the views.
struct Waits {
  std::uint64_t waiters = 0;
  std::int64_t median_ns = 0, longest_ns = 0;
  double ratio() const {
    return static_cast<double>(longest_ns) / static_cast<double>(median_ns == 0 ? 1 : median_ns);
  }
};

/// Virtual time; one thread. Throws what goes wrong.
Waits contend(std::uint64_t seed);

}  // namespace tiermem::sim

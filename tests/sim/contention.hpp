// Liveness under contention. Many callers request several extents repeatedly, together many times
// the budget, and the whole budget is in use. There are no faults. The condition: no caller waits
// much longer than the others. With two memories under pressure at once, extents must not wander
// between them either: the bytes that are relocated for each requested byte have a bound.
#pragma once

#include <cstdint>

namespace tiermem::sim {

/// Waits of callers that had to wait, from the request to the views.
struct Waits {
  std::uint64_t waiters = 0;
  std::int64_t median_ns = 0, longest_ns = 0;
  std::uint64_t requested = 0, relocated = 0;  ///< Bytes.
  double ratio() const {
    return static_cast<double>(longest_ns) / static_cast<double>(median_ns == 0 ? 1 : median_ns);
  }
};

/// Runs on virtual time, with one thread. Throws on a violation. `two_memories`: the budget is that
/// of two memories of the host.
Waits contend(std::uint64_t seed, bool two_memories);

}  // namespace tiermem::sim

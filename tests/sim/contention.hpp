// Liveness under contention. Many callers request several extents repeatedly, together many times
// the budget, and the whole budget is in use. There are no faults. The condition: no caller waits
// much longer than the others. With two memories under pressure at once, or two slot tiers, extents
// must not wander between them either. So the bytes that are relocated for each requested byte have
// a bound, and so have those that go to the slow tier.
#pragma once

#include <cstdint>

namespace tiermem::sim {

/// The tiers under pressure.
enum class Graph : std::uint8_t {
  plain,         ///< One memory, one slot tier with room for everything.
  two_memories,  ///< The budget is that of two memories of the host.
  two_tiers,     ///< The first of two slot tiers has room for a part of the extents.
};

/// Waits of callers that had to wait, from the request to the views.
struct Waits {
  std::uint64_t waiters = 0;
  std::int64_t median_ns = 0, longest_ns = 0;
  std::uint64_t requested = 0, relocated = 0, to_slow_tier = 0;  ///< Bytes.
  double ratio() const {
    return static_cast<double>(longest_ns) / static_cast<double>(median_ns == 0 ? 1 : median_ns);
  }
};

/// Runs on virtual time, with one thread. Throws on a violation.
Waits contend(std::uint64_t seed, Graph graph);

}  // namespace tiermem::sim

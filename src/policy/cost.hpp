// The cost of moving an extent's bytes into a tier or out of it. Placement and Source compare tiers
// by it. Pure; any thread.
//
//   cost = latency + bytes / rate + bytes * wear
//
//   latency  the time until the first byte arrives while the tier is idle
//   rate     bytes per second, measured along the whole way: with the staging, if the bytes pass it
//   wear     the price of a written byte as a time; 0 for reads, and for tiers that do not wear
//
// A victim costs the write into its destination, and the read back at its expected next use. A plan
// or a hint tells the next use, else its place in the order of victims does. A tier without
// measured rates costs nothing. Tiers of equal cost are taken by rank: the position of the tier in
// the order of demotion. Bytes are demoted only towards a higher rank, so a request that waits for
// room waits only for higher ranks.
//
// The mover has no measured rates yet: all its costs are equal, and the rank decides.
#pragma once

#include <compare>
#include <cstdint>

namespace tiermem {

/// The measured properties of one direction of a tier.
struct Rates {
  std::uint64_t bytes_per_s = 0;  ///< 0: not measured.
  std::int64_t latency_ns = 0;
  double wear_ns_per_byte = 0;
};

/// Returns the cost of moving `bytes` bytes.
constexpr std::int64_t cost_ns(std::uint64_t bytes, const Rates& rates) {
  const auto amount = static_cast<double>(bytes);
  const double moving =
      rates.bytes_per_s != 0 ? amount * 1e9 / static_cast<double>(rates.bytes_per_s) : 0;
  return rates.latency_ns + static_cast<std::int64_t>(moving + amount * rates.wear_ns_per_byte);
}

/// The cost of a tier to compare it by. The lower rank is cheaper where the times are equal.
struct Cost {
  std::int64_t ns = 0;
  unsigned rank = 0;
  friend constexpr auto operator<=>(const Cost&, const Cost&) = default;
};

}  // namespace tiermem

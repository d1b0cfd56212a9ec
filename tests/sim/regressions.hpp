// Seeds that failed once: every run of the simulator begins with them. What a seed does changes
// with the simulator; they are kept as long as they show what they are for.
#pragma once

#include <array>
#include <cstdint>

namespace tiermem::sim {

struct Regression {
  std::uint64_t seed, events;
  const char* what;
};

inline constexpr std::array<Regression, 1> kRegressions = {
    {{975, 400, "a touch sees another buffer's bytes where a discard of lost bytes was undone"}}};

}  // namespace tiermem::sim

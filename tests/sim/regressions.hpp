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

inline constexpr std::array<Regression, 7> kRegressions = {
    {{975, 400, "a touch sees another buffer's bytes where a discard of lost bytes was undone"},
     {80000558, 4000, "a request searches without end for victims that cannot leave a device"},
     {20261124087, 4000, "bytes are given up for an acquire with discard that is then refused"},
     {20261128715, 4000, "a reader of an extent in parts gets the error of a write that failed"},
     {20261132937, 4000, "pages that are zeros come back as they were, in a plain buffer"},
     {20261135492, 4000, "the same, in a gather"},
     {20261210945, 4000,
      "who is next to prepare what it overwrites is gone or waits, and so do all"}}};

}  // namespace tiermem::sim

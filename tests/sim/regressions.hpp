// Seeds that failed once: every run of the simulator begins with them. The meaning of a seed
// changes with the simulator; a seed is kept as long as it shows its fault. These runs do not
// confirm earlier blocks, have one slot tier and no mapped files: all of these are newer, and would
// change the seeds.
#pragma once

#include <array>
#include <cstdint>

namespace tiermem::sim {

struct Regression {
  std::uint64_t seed, events;
  const char* what;
};

inline constexpr std::array<Regression, 16> kRegressions = {
    {{975, 400, "a touch sees another buffer's bytes where a discard of lost bytes was undone"},
     {80000558, 4000, "a request searches without end for victims that cannot leave a device"},
     {31000001831, 4000, "pages that are zeros come back as they were, in a plain buffer"},
     {20263006837, 4000, "a deadline is passed over when the end of another request ends one more"},
     {20265001286, 4000, "a request for room is not looked at when the last prefetch ends"},
     {20268000720, 1000, "a release is not looked at when the writer that it waited for has gone"},
     {20268002175, 4000, "a release is not looked at when the request that it waited for fails"},
     {20268004466, 4000, "a discard and the first of the queue wait for each other's frames"},
     {20268007929, 4000, "an extent that cannot be made whole keeps all others from leaving"},
     {20261148200166, 4000, "a request waits for room although the stuck extents have gone"},
     {20261125109299, 400, "room is not looked for while the kernel keeps a freed extent"},
     {20261125201210, 400, "a request is refused before extents are tried that were not read"},
     {20261125405332, 400, "a request is refused before stuck extents are tried again"},
     {20261125503208, 400, "checksums are not freed when a slot changes hands"},
     {20310004771, 400, "a lower budget leaves the landings of the higher one in memory"},
     {20330000032, 304,
      "a release is not looked at when the copy that it waited for leaves at once"}}};

}  // namespace tiermem::sim

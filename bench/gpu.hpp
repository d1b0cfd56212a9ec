// The gpu suite: a GPU's memory as a tier, beside what the driver does by itself. Of the driver's
// first device. Each benchmark adds rows to the session. One thread calls them.
#pragma once

#include <span>

#include "bench/core.hpp"

namespace tiermem::bench {

std::span<const Benchmark> gpu_benchmarks();

Status gpu_h2d_2m(Session& session);
Status gpu_d2h_2m(Session& session);
Status gpu_both_ways(Session& session);
Status gpu_promote_from_nvme(Session& session);
Status gpu_acquire_hit(Session& session);
Status gpu_evict_resume(Session& session);
Status gpu_oversubscribe(Session& session);

namespace bars {
// A copy of 2 MiB alone reaches 0.93 of the link (docs/decisions/gpu-facts.md): books and events
// are to cost nothing beside neighbours that are copied together.
inline constexpr double kGpuLink = 0.95;
// Both ways at once the host's memory is the limit on some machines, and books are kept meanwhile.
inline constexpr double kGpuBothWays = 0.9;
// The slower of disk and link hides the other.
inline constexpr double kGpuFromNvme = 0.95;
// Microseconds for 1,000 blocks, in and out: a step of an engine takes some milliseconds.
inline constexpr double kGpuHitUs = 50;
// The device's memory is given back to the driver and made anew, too.
inline constexpr double kGpuEvictResume = 0.9;
// The slower of transfer and compute hides the other, but for the first layer's way in.
inline constexpr double kGpuOversubscribe = 0.9;
// What the driver moves by itself, told all that can be told: it moves by faults or in calls that
// wait for each other.
inline constexpr double kGpuManaged = 1.5;
}  // namespace bars

}  // namespace tiermem::bench

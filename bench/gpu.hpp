// The gpu suite: a GPU's memory as a tier, beside the driver's own mechanisms. It uses the driver's
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
// A single copy of 2 MiB reaches 0.93 of the link (docs/decisions/gpu-facts.md). Records and events
// should cost nothing beside neighbours that are copied together.
inline constexpr double kGpuLink = 0.95;
// In both directions at once, host memory is the limit on some machines, and records cost time as
// well.
inline constexpr double kGpuBothWays = 0.9;
// The slower of disk and link hides the other.
inline constexpr double kGpuFromNvme = 0.95;
// Microseconds for 1,000 blocks, in and out: a step of an engine takes some milliseconds.
inline constexpr double kGpuHitUs = 50;
// The device's memory also goes back to the driver and is created again.
inline constexpr double kGpuEvictResume = 0.9;
// The slower of transfer and compute hides the other, except for the first layer's transfer in.
inline constexpr double kGpuOversubscribe = 0.9;
// Memory that the driver moves by itself, with all available hints: it moves by faults, or in calls
// that wait for each other.
inline constexpr double kGpuManaged = 1.5;
}  // namespace bars

}  // namespace tiermem::bench

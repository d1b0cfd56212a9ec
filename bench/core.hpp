// The core suite: its benchmarks, in the order in which they run. Each has its own file and adds
// rows to the session. One thread.
#pragma once

#include <span>

#include "bench/harness.hpp"

namespace tiermem::bench {

struct Benchmark {
  const char* name;
  const char* about;
  Status (*run)(Session& session);
};

std::span<const Benchmark> core_benchmarks();

Status costs(Session& session);
Status acquire_release_hit(Session& session);
Status promote_2m(Session& session);
Status demote_2m(Session& session);
Status promote_demote_mix(Session& session);
Status demand_p99(Session& session);
Status gather(Session& session);
Status alloc_free(Session& session);
Status malloc_at(Session& session);
Status idle(Session& session);

/// The minimum of each ratio, and its reason.
namespace bars {
// A view, with its checks and records, takes no longer than the bare pair; a quarter more in C.
inline constexpr double kHit = 1.0;
inline constexpr double kHitC = 0.8;
// Plain loads instead of pairs, for each extent of a view.
inline constexpr double kHitMany = 8.0;
// Two threads share no data that one of them writes, be it on one extent or on two.
inline constexpr double kHitTwo = 0.8;
inline constexpr double kHitShared = 0.9;
// A loop of 60 lines moves the bytes; checksums and records may cost a twentieth.
inline constexpr double kDisk = 0.95;
// Both directions at once, with the choice of victims in between.
inline constexpr double kDiskMix = 0.9;
// A read may take as long as three of the device's own: it may wait for room, and for earlier
// requests on the device.
inline constexpr double kDemandP99 = 0.33;
// Rows from the block tier: the device's own rate of such reads, minus the cost of each row's
// records.
inline constexpr double kGather = 0.95;
// The gain from reading neighbours together: eight times the bytes for each request.
inline constexpr double kGatherCoalesced = 2.5;
// As good as the best of malloc, mimalloc and jemalloc.
inline constexpr double kAlloc = 1.0;
// Costs that should not be noticeable: ms for a context of 16 GiB, records of extents of 2 MiB in
// per cent of their bytes, and the us that a step of the mover may delay a new request.
inline constexpr double kStartUp = 20;
inline constexpr double kMetadata = 0.1;
inline constexpr double kStep = 200;
// Seconds of processor time per second: nothing polls.
inline constexpr double kIdle = 0.001;
}  // namespace bars

}  // namespace tiermem::bench

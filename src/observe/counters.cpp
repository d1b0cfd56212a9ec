// In the order of the struct, which is also the order of the C interface.
#include "observe/counters.hpp"

#include <array>

namespace tiermem {
namespace {

constexpr std::array kCounters = {
    Counter{"dram_budget", &Stats::dram_budget},
    Counter{"dram_used", &Stats::dram_used},
    Counter{"dram_pinned", &Stats::dram_pinned},
    Counter{"block_budget", &Stats::block_budget},
    Counter{"block_used", &Stats::block_used},
    Counter{"buffers", &Stats::buffers},
    Counter{"extents", &Stats::extents},
    Counter{"misses", &Stats::misses},
    Counter{"promoted", &Stats::promoted},
    Counter{"demoted", &Stats::demoted},
    Counter{"evicted_clean", &Stats::evicted_clean},
    Counter{"prefetched", &Stats::prefetched},
    Counter{"prefetched_unused", &Stats::prefetched_unused},
    Counter{"io_errors", &Stats::io_errors},
    Counter{"io_retries", &Stats::io_retries},
    Counter{"checksum_errors", &Stats::checksum_errors},
    Counter{"degraded_devices", &Stats::degraded_devices},
    Counter{"moved_by_uffd", &Stats::moved_by_uffd},
    Counter{"moved_by_remap", &Stats::moved_by_remap},
    Counter{"moved_in_place", &Stats::moved_in_place},
    Counter{"poisoned_touches", &Stats::poisoned_touches},
    Counter{"steps", &Stats::steps},
    Counter{"step_ns_p99", &Stats::step_ns_p99},
    Counter{"dropped", &Stats::dropped},
    Counter{"faults", &Stats::faults},
    Counter{"recalled", &Stats::recalled},
    Counter{"withdrawals_refused", &Stats::withdrawals_refused},
    Counter{"fault_wait_ns", &Stats::fault_wait_ns},
    Counter{"placed_used", &Stats::placed_used},
    Counter{"placed_held", &Stats::placed_held},
    Counter{"moved_by_copy", &Stats::moved_by_copy},
    Counter{"gpu_budget", &Stats::gpu_budget},
    Counter{"gpu_used", &Stats::gpu_used},
    Counter{"gpu_pinned", &Stats::gpu_pinned},
    Counter{"gpu_bytes_in", &Stats::gpu_bytes_in},
    Counter{"gpu_bytes_out", &Stats::gpu_bytes_out},
    Counter{"gpu_placed", &Stats::gpu_placed},
    Counter{"gpu_paused", &Stats::gpu_paused},
    Counter{"gather_reads", &Stats::gather_reads},
    Counter{"gather_bytes", &Stats::gather_bytes},
    Counter{"gpu_bytes_pageable", &Stats::gpu_bytes_pageable},
    Counter{"gpu_bytes_staged", &Stats::gpu_bytes_staged},
    Counter{"gpu_bytes_peer", &Stats::gpu_bytes_peer},
    Counter{"host_bytes_in", &Stats::host_bytes_in},
    Counter{"host_bytes_out", &Stats::host_bytes_out},
    Counter{"demanded", &Stats::demanded},
    Counter{"gpu_direct_in", &Stats::gpu_direct_in},
    Counter{"gpu_direct_out", &Stats::gpu_direct_out},
    Counter{"gpu_direct_errors", &Stats::gpu_direct_errors},
    Counter{"metadata_bytes", &Stats::metadata_bytes},
};
static_assert(offsetof(Stats, tiers) == kCounters.size() * sizeof(std::uint64_t),
              "a field lacks its name");

}  // namespace

std::span<const Counter> counter_table() {
  return kCounters;
}

}  // namespace tiermem

// The list of the gpu suite.
#include "bench/gpu.hpp"

#include <array>

namespace tiermem::bench {

std::span<const Benchmark> gpu_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"gpu_acquire_hit", "1,000 resident blocks, taken and given back in one list",
                gpu_acquire_hit},
      Benchmark{"gpu_h2d_2m", "DRAM to the device, buffers of 2 MiB", gpu_h2d_2m},
      Benchmark{"gpu_d2h_2m", "the device to DRAM, buffers of 2 MiB", gpu_d2h_2m},
      Benchmark{"gpu_both_ways", "both at once", gpu_both_ways},
      Benchmark{"gpu_promote_from_nvme", "disk to the device, buffers of 2 MiB",
                gpu_promote_from_nvme},
      Benchmark{"gpu_evict_resume", "a large set out to DRAM and back", gpu_evict_resume},
      Benchmark{"gpu_oversubscribe", "Adam over twice the device's budget, layer by layer",
                gpu_oversubscribe},
  };
  return kBenchmarks;
}

}  // namespace tiermem::bench

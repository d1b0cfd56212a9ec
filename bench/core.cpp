// The list of the core suite.
#include "bench/core.hpp"

#include <array>

namespace tiermem::bench {

std::span<const Benchmark> core_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"costs", "start, books, memory beside the budget, steps of the mover", costs},
      Benchmark{"acquire_release_hit", "a view of resident bytes, taken and given back",
                acquire_release_hit},
      Benchmark{"promote_2m", "disk to DRAM, 2 MiB extents", promote_2m},
      Benchmark{"demote_2m", "DRAM to disk, 2 MiB extents", demote_2m},
      Benchmark{"promote_demote_mix", "each promote pushes a dirty extent out", promote_demote_mix},
      Benchmark{"demand_p99", "a read of 2 MiB while all that memory holds is written", demand_p99},
      Benchmark{"gather", "rows of a table that is larger than memory", gather},
      Benchmark{"alloc_free", "buffers of 1 and 16 MiB, touched", alloc_free},
      Benchmark{"malloc_at", "objects of 64 bytes by pointer", malloc_at},
      Benchmark{"idle", "processor time with 100,000 live buffers", idle},
  };
  return kBenchmarks;
}

}  // namespace tiermem::bench

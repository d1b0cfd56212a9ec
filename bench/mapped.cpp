// The list of the mapped suite.
#include "bench/mapped.hpp"

#include <array>

namespace tiermem::bench {

std::span<const Benchmark> mapped_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"mapped_scan_read", "a cyclic scan of four times DRAM", mapped_scan_read},
      Benchmark{"mapped_scan_mmap", "cyclic scans of twice DRAM, beside mmap in a memory cgroup",
                mapped_scan_mmap},
      Benchmark{"mapped_random_4k", "random touches of pages, half of them resident",
                mapped_random_4k},
      Benchmark{"mapped_resident", "scans and random reads where all is resident", mapped_resident},
  };
  return kBenchmarks;
}

}  // namespace tiermem::bench

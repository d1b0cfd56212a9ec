// The list of the mapped suite.
#include "bench/mapped.hpp"

#include <array>

namespace tiermem::bench {

std::span<const Benchmark> mapped_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"mapped_scan_read", "a cyclic scan of four times DRAM", mapped_scan_read},
      Benchmark{"mapped_scan_swap", "cyclic scans of twice DRAM, beside swap in a memory cgroup",
                mapped_scan_swap},
      Benchmark{"mapped_scan_zswap", "the same of bytes that compress, beside zswap",
                mapped_scan_zswap},
      Benchmark{"mapped_scan_mmap", "cyclic scans of twice DRAM, beside mmap in a memory cgroup",
                mapped_scan_mmap},
      Benchmark{"mapped_random_4k", "random touches of pages, half of them resident",
                mapped_random_4k},
      Benchmark{"mapped_random_4k_peers", "the same, beside swap, mmap and a user-level pager",
                mapped_random_4k_peers},
      Benchmark{"mapped_random_4k_signal",
                "the same as beside the kernel, where the touching threads read",
                mapped_random_4k_signal},
      Benchmark{"mapped_random_4k_zswap", "the same of bytes that compress, beside zswap",
                mapped_random_4k_zswap},
      Benchmark{"mapped_random_4k_zswap_signal", "the same, where the touching threads unpack",
                mapped_random_4k_zswap_signal},
      Benchmark{"mapped_zipf_4k", "pages by Zipf's law, read and written, beside swap and mmap",
                mapped_zipf_4k},
      Benchmark{"mapped_zipf_4k_signal", "the same, where the touching threads read",
                mapped_zipf_4k_signal},
      Benchmark{"mapped_steps", "steps of equal width over pages, beside swap and mmap",
                mapped_steps},
      Benchmark{"mapped_fault", "touches that need no I/O, beside a bare userfaultfd",
                mapped_fault},
      Benchmark{"mapped_gemm", "a product of matrices by tiles, beside the same in memory",
                mapped_gemm},
      Benchmark{"mapped_sort", "std::sort of twice DRAM, beside swap", mapped_sort},
      Benchmark{"mapped_file_scan", "scans of an adopted file of twice DRAM, beside mmap",
                mapped_file_scan},
      Benchmark{"mapped_file_random_4k", "random reads of pages of such a file, beside mmap",
                mapped_file_random_4k},
      Benchmark{"mapped_resident", "scans and random reads where all is resident", mapped_resident},
      Benchmark{"preload_small", "malloc and free of small blocks under the preload library",
                preload_small},
  };
  return kBenchmarks;
}

}  // namespace tiermem::bench

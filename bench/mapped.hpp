// The mapped suite: buffers touched through an address, without views. Each benchmark has its own
// file and adds rows to the session. One thread calls them.
#pragma once

#include <span>

#include "bench/core.hpp"

namespace tiermem::bench {

std::span<const Benchmark> mapped_benchmarks();

Status mapped_scan_read(Session& session);
Status mapped_scan_swap(Session& session);
Status mapped_scan_zswap(Session& session);
Status mapped_scan_mmap(Session& session);
Status mapped_random_4k(Session& session);
Status mapped_random_4k_peers(Session& session);
Status mapped_random_4k_signal(Session& session);
Status mapped_random_4k_zswap(Session& session);
Status mapped_random_4k_zswap_signal(Session& session);
Status mapped_zipf_4k(Session& session);
Status mapped_zipf_4k_signal(Session& session);
Status mapped_steps(Session& session);
Status mapped_fault(Session& session);
Status mapped_gemm(Session& session);
Status mapped_sort(Session& session);
Status mapped_file_scan(Session& session);
Status mapped_file_random_4k(Session& session);
Status mapped_resident(Session& session);
Status preload_small(Session& session);

namespace bars {
// A scan of a buffer of four times DRAM, a part of which stays, beside a loop that reads all bytes.
inline constexpr double kMappedScan = 0.97;
// At least as fast as mmap with its best advice; the kernel writes pages one by one.
inline constexpr double kMappedReadMmap = 1.0;
inline constexpr double kMappedWriteMmap = 1.2;
// The kernel swaps page by page: 0.1 to 0.3 GB/s on a device with 3 GB/s.
inline constexpr double kMappedScanSwap = 10;
// A miss is a device read and a trip through the kernel; everything else may cost a tenth more.
inline constexpr double kMappedRandom = 0.9;
// The better of swap and mmap serves a miss in the touching thread: one hop fewer. With several
// threads, the misses overlap.
inline constexpr double kMappedRandomKernel = 0.75;
inline constexpr double kMappedRandomKernelMany = 1.0;
// Where touches are signals, tiermem has no hop more.
inline constexpr double kMappedRandomSignal = 0.95;
// Both sides keep packed pages in memory, and the touching thread unpacks.
inline constexpr double kMappedRandomZswap = 1.0;
// An earlier user-level pager.
inline constexpr double kMappedRandomUmap = 2;
// Pages with different touch frequencies, as in most programs: no slower than the kernel.
inline constexpr double kMappedZipf = 1.0;
// A touch without I/O: a bare trip and half as much again; for 2 MiB in microseconds.
inline constexpr double kMappedFault = 0.66;
inline constexpr double kMappedFault2mUs = 60;
// Frequently touched bytes stay, and the rest arrives while the processors work.
inline constexpr double kMappedGemm = 0.9;
// Swap sorts at a third of the speed of memory; half of that loss can be recovered.
inline constexpr double kMappedSort = 1.9;
// Small blocks come from the same jemalloc, over tiered memory.
inline constexpr double kPreloadSmall = 0.97;
// Resident bytes are plain memory.
inline constexpr double kMappedResident = 0.99;
}  // namespace bars

}  // namespace tiermem::bench

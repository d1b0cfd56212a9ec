// The mapped suite: buffers touched through an address, without views. Each benchmark has a file of
// its own and adds rows to the session. One thread calls them.
#pragma once

#include <span>

#include "bench/core.hpp"

namespace tiermem::bench {

std::span<const Benchmark> mapped_benchmarks();

Status mapped_scan_read(Session& session);
Status mapped_scan_mmap(Session& session);
Status mapped_random_4k(Session& session);
Status mapped_resident(Session& session);

namespace bars {
// A scan of a buffer of four times DRAM, of which a part stays, beside a loop that reads all.
inline constexpr double kMappedScan = 0.97;
// At least mmap with the best of its advice; the kernel writes pages one by one.
inline constexpr double kMappedReadMmap = 1.0;
inline constexpr double kMappedWriteMmap = 1.2;
// A miss is a read of the device and a trip through the kernel; a tenth more for all else.
inline constexpr double kMappedRandom = 0.9;
// What is resident is plain memory.
inline constexpr double kMappedResident = 0.99;
}  // namespace bars

}  // namespace tiermem::bench

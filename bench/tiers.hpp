// The tiers suite: the host's memories beside the C library, the kernel, libpmem and memkind. Each
// benchmark adds rows to the session. One thread calls them.
#pragma once

#include <span>

#include "bench/core.hpp"

namespace tiermem::bench {

std::span<const Benchmark> tiers_benchmarks();

Status dram_copy(Session& session);
Status numa_migrate_mapped(Session& session);
Status pmem_write(Session& session);
Status malloc_at_memories(Session& session);

namespace bars {
// Streaming stores save the read of each line that is overwritten: a third of the traffic. With two
// threads the memory itself is the limit, so the saving counts in full.
inline constexpr double kCopyOneThread = 1.2;
inline constexpr double kCopyTwoThreads = 1.4;
// The records of extents cost a twentieth of what the kernel takes to move pages.
inline constexpr double kMigrate = 0.95;
// As good as the library that is made for it.
inline constexpr double kPmemWrite = 0.95;
inline constexpr double kMallocAtMemory = 0.9;
}  // namespace bars

}  // namespace tiermem::bench

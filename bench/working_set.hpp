// A context and a working set of several times its DRAM: buffers of one 2 MiB extent each, all
// written once with incompressible bytes. Moves them for the disk benchmarks. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

/// The memory that a benchmark may take on this machine: 1 GiB, or less if less is free.
std::uint64_t benchmark_dram();

class WorkingSet {
 public:
  static constexpr std::uint64_t kExtent = std::uint64_t{2} << 20;
  static constexpr unsigned kTimesDram = 4;

  /// Errors: those of Context::create, alloc and acquire.
  static Result<std::unique_ptr<WorkingSet>> create(const std::string& directory,
                                                    std::uint64_t dram, bool checksum);

  std::uint64_t dram() const { return dram_; }
  /// Queues prefetches of clean extents; the oldest are evicted without a write. GB/s read.
  Result<Sample> promote(std::uint64_t bytes) { return timed_stream(bytes, kRead); }
  /// Writes dirty extents to disk, half of DRAM at a time; only the evictions are timed. GB/s
  /// written.
  Result<Sample> demote(std::uint64_t bytes);
  /// Promotes extents and makes each dirty, so that every promotion evicts a dirty one. GB/s of
  /// both directions.
  Result<Sample> mix(std::uint64_t bytes) { return timed_stream(bytes, kWrite); }

 private:
  WorkingSet() = default;
  Status evict_all();
  /// Prefetches ahead and acquires in order until `bytes` came in; returns the counters from
  /// before.
  Result<Stats> stream(std::uint64_t bytes, std::uint32_t mode);
  Result<Sample> timed_stream(std::uint64_t bytes, std::uint32_t mode);
  std::uint64_t next() { return cursor_++ % buffers_.size(); }
  Status fill(std::uint64_t index);
  Result<Op> prefetch(std::uint64_t first, std::uint64_t count);

  std::uint64_t dram_ = 0;
  std::unique_ptr<Context> context_;
  std::vector<Buffer> buffers_;
  std::vector<std::byte> random_;
  std::uint64_t cursor_ = 0;
  std::uint64_t fills_ = 0;
};

}  // namespace tiermem::bench

// A trace run through a context for real: a buffer for each block, an acquire and a release for
// each reference, and every block's bytes checked at every access. One thread; takes as long as
// the memory takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "observe/histogram.hpp"
#include "policy/trace.hpp"
#include "tiermem/context.hpp"

namespace tiermem::cli {

struct ReplayPlan {
  std::span<const Reference> references;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;  ///< A power of two: one extent.
  unsigned write_percent = 0;     ///< Of the references that the trace calls reads.
  unsigned ahead = 0;  ///< The block of the so manieth next reference is prefetched; 0: none is.
};

struct ReplayOutcome {
  std::uint64_t references = 0;
  std::uint64_t writes = 0;  ///< References that changed a block; first ones included.
  std::uint64_t wrong = 0;   ///< Blocks whose bytes were not the last ones written.
  std::uint32_t first_wrong_block = 0;
  std::uint64_t first_wrong_reference = 0;
  Histogram acquire;
  Stats stats;  ///< Differences from start to end for what counts up.
  double seconds = 0;
  /// Bytes that came in from the block tier, on demand or ahead of it.
  std::uint64_t read_bytes() const { return stats.promoted + stats.prefetched; }
  /// Bytes that were not there when, or before, they were asked for, and then were used.
  std::uint64_t needed_bytes() const {
    return stats.demanded + stats.prefetched - std::min(stats.prefetched_unused, stats.prefetched);
  }
  std::uint64_t moved_bytes() const { return stats.host_bytes_in + stats.host_bytes_out; }
  double hit_ratio() const {
    return references == 0
               ? 0
               : 1 - static_cast<double>(stats.misses) / static_cast<double>(references);
  }
};

/// A block's first reference writes it, whatever the trace calls it, and counts as a miss wherever
/// it is one. Errors: those of alloc and acquire; a wrong block is no error here.
Result<ReplayOutcome> run_replay(Context& context, const ReplayPlan& plan,
                                 const std::function<void(std::uint64_t done)>& progress);

}  // namespace tiermem::cli

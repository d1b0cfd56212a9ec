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

/// Where the bytes of each reference were. The four kinds exclude each other, and their sum is the
/// number of references.
///
/// A reference is a hit only if its block stayed in memory since the reference before: so do MIN
/// and the computed policies count. A first use is never a hit, also where a buffer was made ahead
/// and its frame was there. A block that a prefetch brought back costs a read as a demanded one
/// does, so it has a kind of its own.
struct ReplayCounts {
  std::uint64_t hits = 0;
  std::uint64_t first_uses = 0;  ///< One for each block.
  std::uint64_t waited = 0;      ///< The block was not in memory, and acquire waited.
  std::uint64_t prefetched = 0;  ///< A prefetch had brought the block back in time.
  std::uint64_t references() const { return hits + misses(); }
  std::uint64_t misses() const { return first_uses + waited + prefetched; }
};

struct ReplayOutcome {
  ReplayCounts counts;
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
  /// The share of all references, from 0 to 1.
  double hit_ratio() const {
    return counts.references() == 0
               ? 0
               : static_cast<double>(counts.hits) / static_cast<double>(counts.references());
  }
};

/// A block's first reference writes it, whatever the trace calls it. Errors: those of alloc and
/// acquire; a wrong block is no error here.
Result<ReplayOutcome> run_replay(Context& context, const ReplayPlan& plan,
                                 const std::function<void(std::uint64_t done)>& progress);

}  // namespace tiermem::cli

// Runs a trace through a real context: a buffer for each block, an acquire and a release for each
// reference, and a check of the block's bytes at every access. One thread; takes as long as the
// memory takes.
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
  unsigned write_percent = 0;     ///< Percentage of the trace's reads that become writes.
  unsigned ahead = 0;  ///< The block of the reference this far ahead is prefetched; 0: none.
};

/// Where the bytes of each reference were. The four kinds exclude each other, and their sum is the
/// number of references.
///
/// A reference is a hit only if its block has stayed in memory since its previous reference. MIN
/// and the computed policies count the same way. A first use is never a hit, even if a buffer and
/// its frame were prepared in advance. A block that a prefetch brought in costs a read, as a
/// demanded one does, so it has a kind of its own.
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
  std::uint64_t writes = 0;  ///< References that changed a block, including first ones.
  std::uint64_t wrong = 0;   ///< Blocks with bytes other than those last written.
  std::uint32_t first_wrong_block = 0;
  std::uint64_t first_wrong_reference = 0;
  Histogram acquire;
  Stats stats;  ///< For counters, the difference from start to end.
  double seconds = 0;
  /// Bytes that came in from the block tier, on demand or in advance.
  std::uint64_t read_bytes() const { return stats.promoted + stats.prefetched; }
  /// Bytes that were absent when or before they were requested, and were then used.
  std::uint64_t needed_bytes() const {
    return stats.demanded + stats.prefetched - std::min(stats.prefetched_unused, stats.prefetched);
  }
  std::uint64_t moved_bytes() const { return stats.host_bytes_in + stats.host_bytes_out; }
  /// The fraction of all references, from 0 to 1.
  double hit_ratio() const {
    return counts.references() == 0
               ? 0
               : static_cast<double>(counts.hits) / static_cast<double>(counts.references());
  }
};

/// A block's first reference writes it, whatever the trace says. Errors: those of alloc and
/// acquire; a wrong block is not an error here.
Result<ReplayOutcome> run_replay(Context& context, const ReplayPlan& plan,
                                 const std::function<void(std::uint64_t done)>& progress);

}  // namespace tiermem::cli

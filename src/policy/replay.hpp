// Replays a trace through Recency as the mover would drive it: unit blocks, one memory, demand
// fetches, eviction in batches. For hit ratios in tests and tools. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "policy/trace.hpp"

namespace tiermem {

/// A hint that the program gives for a block after a number of references of a repetition.
struct ReplayHint {
  std::uint64_t after = 0;
  std::uint32_t block = 0;
  Advice advice = Advice::normal;
};

struct ReplayOptions {
  std::uint32_t capacity = 1;  ///< Size of the memory in blocks.
  /// Number of victims taken at a time; the memory then has room for as many blocks.
  std::uint32_t batch = 1;
  std::uint32_t repeat = 1;  ///< Number of times that the whole sequence is replayed.
  /// Number of touches for each reference, as by views smaller than a block.
  std::uint32_t touches = 1;
  std::span<const ReplayHint> hints = {};  ///< Sorted by `after`.
  bool hidden = false;  ///< References of resident blocks are not seen, as those of mapped memory.
};

struct ReplayResult {
  std::uint64_t references = 0;
  std::uint64_t hits = 0;          ///< Hits of `references`; further touches are not counted.
  std::uint64_t last_hits = 0;     ///< Hits of the last repetition.
  std::uint64_t written_back = 0;  ///< Number of dirty victims.
  double hit_ratio() const {
    return references == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(references);
  }
};

/// May throw std::bad_alloc. Every block is < blocks.
ReplayResult replay_recency(std::span<const Reference> references, std::uint32_t blocks,
                            const ReplayOptions& options);

}  // namespace tiermem

// Replays a trace through Recency as the mover would drive it: unit blocks, one memory, demand
// fetches, eviction in batches. For hit ratios in tests and tools; pure; any one thread.
#pragma once

#include <cstdint>
#include <span>

#include "policy/trace.hpp"

namespace tiermem {

/// What the program says of a block after so many references of a repetition.
struct ReplayHint {
  std::uint64_t after = 0;
  std::uint32_t block = 0;
  Advice advice = Advice::normal;
};

struct ReplayOptions {
  std::uint32_t capacity = 1;  ///< Of the memory, in blocks.
  std::uint32_t batch = 1;     ///< Victims taken at a time; the memory then has room for so many.
  std::uint32_t repeat = 1;    ///< How often the whole sequence is replayed.
  std::uint32_t touches = 1;   ///< References made of each one, as by views smaller than a block.
  std::span<const ReplayHint> hints = {};  ///< In the order of `after`.
};

struct ReplayResult {
  std::uint64_t references = 0;
  std::uint64_t hits = 0;          ///< Of `references`; further touches are not counted.
  std::uint64_t last_hits = 0;     ///< Of the last repetition.
  std::uint64_t written_back = 0;  ///< Victims that were dirty.
  double hit_ratio() const {
    return references == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(references);
  }
};

/// May throw std::bad_alloc. Every block is < blocks.
ReplayResult replay_recency(std::span<const Reference> references, std::uint32_t blocks,
                            const ReplayOptions& options);

}  // namespace tiermem

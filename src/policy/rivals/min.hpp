// Belady's MIN: the hits of a policy that knows the future and evicts the farthest next use. The
// bound that no policy for equal blocks exceeds. For replay only; pure; any one thread.
#pragma once

#include <cstdint>
#include <span>

#include "policy/trace.hpp"

namespace tiermem {

/// Hits of MIN on these references with a memory of `capacity` blocks, at least 1. Every block is
/// < blocks. 12 bytes per reference while it runs; may throw std::bad_alloc.
std::uint64_t min_hits(std::span<const Reference> references, std::uint32_t blocks,
                       std::uint32_t capacity);

}  // namespace tiermem

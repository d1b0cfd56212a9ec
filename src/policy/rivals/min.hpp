// Belady's MIN: the hits of a policy that knows the future and evicts the block with the farthest
// next use. No policy for equal blocks exceeds this bound. For replay only. Pure; one thread at a
// time.
#pragma once

#include <cstdint>
#include <span>

#include "policy/trace.hpp"

namespace tiermem {

/// Returns the hits of MIN on these references with a memory of `capacity` blocks, at least 1.
/// Every block is < blocks. Uses 12 bytes for each reference while it runs; may throw
/// std::bad_alloc.
std::uint64_t min_hits(std::span<const Reference> references, std::uint32_t blocks,
                       std::uint32_t capacity);

}  // namespace tiermem

// The heap: jemalloc with its extents drawn from regions. Small blocks come from a heap of small
// extents, as they are touched at random, with one jemalloc arena for each processor; medium ones
// from a heap of huge extents. What jemalloc itself needs to run is in its arena 0, plain memory.
//
// Threads: any. bind_heap() once in each thread before its first small block.
#pragma once

#include <cstddef>

namespace tiermem::preload {

/// This thread's small blocks come from the tiers from now on.
void bind_heap();
/// A block that is never tiered.
void* plain_block(std::size_t bytes, bool zero);
/// A medium block; null when there is no memory. `alignment`: a power of two.
void* medium_block(std::size_t bytes, std::size_t alignment, bool zero);
/// The block becomes a medium one of `bytes`, here or elsewhere; null leaves it as it was.
void* resize_to_medium(void* block, std::size_t bytes);

}  // namespace tiermem::preload

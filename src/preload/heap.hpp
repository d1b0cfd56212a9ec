// The heap: jemalloc with extents taken from regions. Small blocks come from a heap of small
// extents, because their touches are random; it has one jemalloc arena for each processor. Medium
// blocks come from a heap of large extents. jemalloc's own data is in its arena 0, in plain memory.
//
// Threads: any. Each thread calls bind_heap() once before its first small block.
#pragma once

#include <cstddef>

namespace tiermem::preload {

/// This thread's small blocks come from tiered memory from now on.
void bind_heap();
/// A block that is never tiered.
void* plain_block(std::size_t bytes, bool zero);
/// Returns a medium block, or null if there is no memory. `alignment` is a power of two.
void* medium_block(std::size_t bytes, std::size_t alignment, bool zero);
/// Makes `block` a medium one of `bytes`, in place or elsewhere. On null the block is unchanged.
void* resize_to_medium(void* block, std::size_t bytes);

}  // namespace tiermem::preload

// The heap: jemalloc with extents taken from regions. Small blocks come from a heap of small
// extents, because their touches are random; it has one jemalloc arena for each processor. Medium
// blocks come from a heap of large extents. jemalloc's own data is in its arena 0, in plain memory.
//
// Threads: any. Each thread calls bind_heap() once before its first small block.
#pragma once

#include <cstddef>

namespace tiermem::preload {

/// Starts jemalloc, unless it has been started. Call it before any other function, and before
/// jemalloc's own that make blocks: a fork must not meet a heap that another thread starts.
void start_heap();
/// This thread's small blocks come from tiered memory from now on.
void bind_heap();
/// A block that is never tiered.
void* plain_block(std::size_t bytes, bool zero);
/// Returns a medium block, or null if there is no memory. `alignment` is a power of two.
void* medium_block(std::size_t bytes, std::size_t alignment, bool zero);
/// Makes `block` a medium one of `bytes`, in place or elsewhere. On null the block is unchanged.
void* resize_to_medium(void* block, std::size_t bytes);

// [forking thread] jemalloc's part of a fork. Before it, the program's handlers may still call the
// heap, but nothing may afterwards.
void heap_before_fork();
void heap_after_fork_in_parent();
void heap_after_fork_in_child();

}  // namespace tiermem::preload

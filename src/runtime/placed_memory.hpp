// Small objects by pointer: the heaps of a context. One is for memory that moves (mapped buffers),
// one for memory that stays in DRAM (buffers held by a view). Maps places to heaps, and writes the
// error messages.
//
// Threads: any. The heaps' memory consists of buffers of the context and ends with it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "heap/heap.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

class PlacedMemory {
 public:
  explicit PlacedMemory(Context::Impl& context);
  ~PlacedMemory();
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;

  // See Context::malloc_at, calloc_at, realloc_at, free_ptr and usable_size.
  Result<void*> allocate(Place place, std::uint64_t bytes, std::uint64_t align);
  Result<void*> allocate_zeros(Place place, std::uint64_t bytes, std::uint64_t align);
  Result<void*> reallocate(Place place, void* block, std::uint64_t bytes, std::uint64_t align);
  Status free(void* block);
  Result<std::uint64_t> usable_size(const void* block) const;

  void add_stats(Stats& stats) const;

  // [the forking thread] No thread is inside until after_fork().
  void before_fork();
  void after_fork();

 private:
  class BufferSource;  // The source of a heap.
  struct Made;
  Result<heap::Heap*> heap_of(Place place);
  Result<std::uint64_t> size_of(const char* call, const void* block) const;
  Result<heap::Heap*> heap(std::atomic<Made*>& which, bool moves);

  Context::Impl& context_;
  // Made on first use, then constant. The table comes before the heaps.
  std::atomic<heap::ChunkTable*> table_{nullptr};
  std::atomic<Made*> tiered_{nullptr}, fixed_{nullptr};
  std::mutex mutex_;  // Held to create one.
};

}  // namespace tiermem

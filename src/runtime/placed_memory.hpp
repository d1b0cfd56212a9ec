// Small objects by pointer: the heaps of a context, one for memory that moves by itself (mapped
// buffers) and one for memory that stays in DRAM (buffers held by a view). Says which place is
// which heap, and makes the sentences of what is refused.
//
// Threads: any. The heaps' memory is made of buffers of the context and ends with it.
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

  // See Context::malloc_at, free_ptr and usable_size.
  Result<void*> allocate(Place place, std::uint64_t bytes, std::uint64_t align);
  Status free(void* block);
  Result<std::uint64_t> usable_size(const void* block) const;

  void add_stats(Stats& stats) const;

  // [who forks] Nobody is inside meanwhile.
  void before_fork();
  void after_fork();

 private:
  class BufferSource;  // The source of a heap.
  struct Made;
  Result<heap::Heap*> heap_of(Place place);
  Result<heap::Heap*> heap(std::atomic<Made*>& which, bool moves);

  Context::Impl& context_;
  // Made when first asked for; then constant. The table before the heaps.
  std::atomic<heap::ChunkTable*> table_{nullptr};
  std::atomic<Made*> tiered_{nullptr}, fixed_{nullptr};
  std::mutex mutex_;  // Of whoever makes one.
};

}  // namespace tiermem

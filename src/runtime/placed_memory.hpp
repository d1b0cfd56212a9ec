// Small objects by pointer: the heaps of a context. One is for memory that moves (mapped buffers).
// Each memory of the host has one for objects that stay there (buffers held by a view). Maps places
// to heaps, and writes the error messages.
//
// Threads: any. The heaps' memory consists of buffers of the context and ends with it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "heap/heap.hpp"
#include "heap/magazines.hpp"
#include "mover/kept_memory.hpp"
#include "tier/frame.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

class PlacedMemory final : public KeptMemory {
 public:
  explicit PlacedMemory(Context::Impl& context);
  ~PlacedMemory();
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;

  // The calls that take no lock, and mark no call: the magazines of a thread tell by themselves
  // whether the context is open. `context` need not exist any more.
  /// Returns an object from the calling thread's magazines, or null: allocate() does the rest.
  static void* take_kept(const Context::Impl* context, Place place, std::uint64_t bytes,
                         std::uint64_t align) noexcept {
    if (bytes > heap::kLargestKept || (align & (align - 1)) != 0 || align - 1 >= heap::kLeastAlign)
        [[unlikely]] {
      return nullptr;
    }
    return heap::Magazines::take(context, use_of(place), heap::kept_class(bytes));
  }
  /// Frees an object into the calling thread's magazines. Returns false if it is not one, or if
  /// they have no room: free() does the rest.
  static bool give_kept(const Context::Impl* context, void* block) noexcept {
    return heap::Magazines::give(context, block);
  }

  // See Context::malloc_at, calloc_at, realloc_at, free_ptr and usable_size.
  Result<void*> allocate(Place place, std::uint64_t bytes, std::uint64_t align);
  Result<void*> allocate_zeros(Place place, std::uint64_t bytes, std::uint64_t align);
  Result<void*> reallocate(Place place, void* block, std::uint64_t bytes, std::uint64_t align);
  Status free(void* block);
  Result<std::uint64_t> usable_size(const void* block) const;

  void add_stats(Stats& stats) const;

  bool press(bool on) override;
  /// The context closes: no thread finds its magazines any more.
  void close();

  // [the forking thread] No thread is inside until after_fork().
  void before_fork();
  void after_fork();
  /// [child of fork, its only thread] Memory that stays in DRAM stays with the parent. Blocks of it
  /// may be freed and are otherwise stale; new ones come from a new heap. Throws bad_alloc.
  void leave_to_parent();
  /// [child of fork] Frees the blocks that threads of the parent kept.
  void recover();

 private:
  class BufferSource;  // The source of a heap.
  struct Made;
  static constexpr unsigned kMoves = kMostMemories;  // Instead of the number of a memory.

  static heap::Use use_of(Place place) noexcept {
    return place.index != 0 || place.kind > Kind::dram ? heap::use_of(place)
           : place.kind == Kind::any                   ? heap::Use::any
                                                       : heap::Use::fixed;
  }
  template <typename Visit>
  void each_own(Visit&& visit) const;  // Without those of ancestors.
  template <typename Visit>
  void each_made(Visit&& visit) const;
  Result<heap::Heap*> heap_of(Place place);
  Result<std::uint64_t> size_of(const char* call, const void* block) const;
  Result<heap::Heap*> heap(unsigned which);
  std::uint64_t budget_of(Place place) const;

  Context::Impl& context_;
  // Made on first use, then constant. The table comes before the heaps.
  std::atomic<heap::ChunkTable*> table_{nullptr};
  // By the number of the memory in which the objects stay; [kMoves] for memory that moves.
  std::array<std::atomic<Made*>, kMostMemories + 1> heaps_{};
  std::mutex mutex_;    // Held to create one.
  Vector<Made*> left_;  // Heaps of ancestors. Changes only while the process has one thread.
};

}  // namespace tiermem

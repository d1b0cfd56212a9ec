// The magazines of a thread: small blocks that it keeps, so that most calls take no lock. A thread
// has one Magazines object in each heap that it uses, with a magazine for each class of blocks. Its
// calls take blocks out of a magazine and put freed blocks into it. When a magazine is empty or
// full, half of its blocks come from the heap or go back to it.
//
// A block in a magazine is kept (chunk.hpp). No page of it is touched, and it is charged to the
// budget as part of its chunk. Other threads may empty the magazines: when memory is short, when
// the heap ends, and after a fork. The thread's own end empties them, too.
//
// Rule between the thread and a thread that empties its magazines. The thread marks itself `busy`,
// and then uses the magazines only if `owner` is the context of the call. The emptying thread
// clears `owner`, runs the heavy half of a fence, and waits until the thread is not busy. A thread
// is busy for a few instructions: without a lock, a system call, or a touch of memory that moves.
//
// Threads: take() and give() are for any thread, and use only its own magazines. The mutex of all
// Magazines guards the other functions. Signal handlers must not call the heap.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/arena.hpp"
#include "heap/block_sizes.hpp"
#include "heap/chunk.hpp"
#include "heap/chunk_table.hpp"
#include "os/asymmetric_fence.hpp"

namespace tiermem::heap {

/// The places that a heap serves. One heap may serve `fixed` and `any`, so these are bits. A heap
/// for one further memory has a number from use_of().
enum class Use : std::uint64_t { fixed = 1, any = 2 };
inline constexpr std::uint64_t kUseBits = 3;

/// Returns the use of a heap for this place only. Every place has its own, also a place that no
/// tier has.
constexpr Use use_of(Place place) noexcept {
  return Use{(kUseBits + 1) | std::uint64_t{static_cast<std::uint16_t>(place.kind)} << 16 |
             std::uint64_t{place.index} << 32};
}
/// Returns whether a heap with these uses, HeapOptions::uses, serves the use.
constexpr bool serves(std::uint64_t uses, Use use) noexcept {
  const auto wanted = static_cast<std::uint64_t>(use);
  return wanted <= kUseBits ? (uses & wanted) != 0 : uses == wanted;
}

/// Blocks on their way between a slab and a magazine.
struct Batch {
  std::array<KeptBlock, kMagazineBlocks + 1> blocks{};
  std::uint32_t n = 0;

  void add(const KeptBlock& block) { blocks[n++] = block; }
};

class Magazines : public InArena {
 public:
  /// Takes a block of a class out of the calling thread's magazines. Returns null if there is none:
  /// the caller then asks the heap. `owner`: see HeapOptions; it need not exist any more.
  static void* take(const void* owner, Use use, unsigned size_class) noexcept {
    for (Magazines* mine = t_first; mine != nullptr; mine = mine->next_of_thread_) {
      const Busy busy(*mine, owner);
      if (busy.may_use() && serves(mine->uses_, use)) [[likely]] {
        return mine->take(size_class);
      }
    }
    return nullptr;
  }

  /// Takes a block from the program, and puts it into the calling thread's magazines. Returns false
  /// if it is not a small block of the owner that is out, or if there is no room for it: the caller
  /// then asks the heap. `block` may be any pointer.
  static bool give(const void* owner, void* block) noexcept {
    for (Magazines* mine = t_first; mine != nullptr; mine = mine->next_of_thread_) {
      const Busy busy(*mine, owner);
      if (!busy.may_use()) [[unlikely]] {
        continue;
      }
      Chunk* const chunk = mine->table_->find(block);
      if (chunk == nullptr) [[unlikely]] {
        return false;
      }
      if (chunk->heap != mine->heap_) [[unlikely]] {
        continue;
      }
      Slab* const slab = chunk->slab_at(block);
      if (slab == nullptr || slab->size_class >= kKeptClasses) [[unlikely]] {
        return false;
      }
      Magazine& magazine = mine->magazines_[slab->size_class];
      const std::uint32_t n = magazine.n.load(std::memory_order_relaxed);
      const std::byte* at = nullptr;
      const std::uint32_t index = slab->find(block, at);
      if (n == magazine.most || index == Slab::kNoBlock || !slab->end_use(index, at)) [[unlikely]] {
        return false;
      }
      magazine.blocks[n] = {static_cast<std::byte*>(block), &slab->out()[index]};
      magazine.n.store(n + 1, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  // For the heap, while the calling thread is inside it.
  /// Returns the calling thread's magazines in this heap. Null if it may have none: the heap keeps
  /// none, has as many as it may have, or the thread is ending.
  static Magazines* of_thread(Heap& heap) noexcept;
  /// Takes a block of a class out of these magazines. Returns null if there is none.
  void* take(unsigned size_class, const void* owner) noexcept {
    const Busy busy(*this, owner);
    return busy.may_use() ? take(size_class) : nullptr;
  }
  /// Puts blocks of a class into the magazine. Those for which there is no room stay in the batch.
  void fill(Batch& batch, unsigned size_class, const void* owner) noexcept;
  /// Puts a block into the magazine. If that is full, half of it goes to the batch; if the
  /// magazines may not be used, the block does.
  void keep(const KeptBlock& block, unsigned size_class, const void* owner, Batch& batch) noexcept;

  /// Empties the magazines of all threads in the heap; they may be used again. Gives up waiting for
  /// a thread that is not running after `patience_ns`. Returns whether a piece of memory went back
  /// to the source.
  static bool empty_all(Heap& heap, std::int64_t patience_ns) noexcept;
  static constexpr std::int64_t kNoLimit = -1;
  /// Allows or forbids magazines in the heap. Call empty_all() after forbidding.
  static void allow(Heap& heap, bool on) noexcept;
  /// Waits for threads that end, and are emptying their magazines of the heap. None may begin.
  static void await_ending(const Heap& heap) noexcept;
  /// Returns the bytes of blocks in all magazines of the heap. Exact while no thread uses them.
  static std::uint64_t bytes_in(const Heap& heap) noexcept;

  // [forking thread] No thread may be inside the functions under the mutex during the fork.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  /// Called before it in the child: no thread has magazines. Heap::recover() finds their blocks.
  static void after_fork_in_child() noexcept;

 private:
  struct Magazine {
    /// Written by its thread, or by the thread that empties it.
    std::atomic<std::uint32_t> n{0};
    std::uint32_t most = 0;
    std::array<KeptBlock, kMagazineBlocks> blocks{};
  };

  /// Marks the thread busy with its magazines, for the life of the object. Does not nest.
  class Busy {
   public:
    Busy(Magazines& mine, const void* owner) noexcept : mine_(mine) {
      mine_.busy_.store(true, std::memory_order_relaxed);
      light_fence();  // Partner: the heavy half in empty_all().
      may_use_ = mine_.owner_.load(std::memory_order_acquire) == owner;
    }
    ~Busy() { mine_.busy_.store(false, std::memory_order_release); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    bool may_use() const noexcept { return may_use_; }

   private:
    Magazines& mine_;
    bool may_use_;
  };

  Magazines() noexcept;
  // Requires Busy.
  void* take(unsigned size_class) noexcept {
    Magazine& magazine = magazines_[size_class];
    const std::uint32_t n = magazine.n.load(std::memory_order_relaxed);
    if (n == 0) [[unlikely]] {
      return nullptr;
    }
    magazine.n.store(n - 1, std::memory_order_relaxed);
    return magazine.blocks[n - 1].use();
  }
  static Magazines* bind(Heap& heap) noexcept;
  static Magazines* spare_of_thread(const Heap& heap) noexcept;
  void shut(std::uint64_t round) noexcept;
  bool is_shut_by(std::uint64_t round, const Heap& heap) const noexcept;
  bool empty(Heap& heap, std::uint64_t round) noexcept;
  bool await_not_busy(std::int64_t& patience_ns) const noexcept;
  static void thread_ends(void* first) noexcept;

  /// The calling thread's objects, one for each heap that it uses or used.
  static __thread Magazines* t_first __attribute__((tls_model("initial-exec")));

  /// Null: the thread must not use the magazines. Set under the mutex of all Magazines.
  std::atomic<const void*> owner_{nullptr};
  /// Written by its thread.
  std::atomic<bool> busy_{false};
  // Written under the mutex while owner_ is null, and read by the thread while it is not.
  std::uint64_t uses_ = 0;
  const ChunkTable* table_ = nullptr;
  Heap* heap_ = nullptr;  // Null: the object is spare, and all magazines are empty.
  // Guarded by the mutex. The number of the call that empties the magazines, while owner_ is null:
  // only the last of several may touch them.
  std::uint64_t shut_by_ = 0;
  bool has_thread_ = false;
  Magazines* next_of_thread_ = nullptr;  // Written by its thread.
  Magazines* next_of_all_ = nullptr;     // Constant.
  std::array<Magazine, kKeptClasses> magazines_{};
};

}  // namespace tiermem::heap

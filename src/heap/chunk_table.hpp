// A table from addresses to chunks, which distinguishes a heap's block from any other pointer. It
// has two levels. Their pages exist only where addresses were entered.
//
// Threads: any thread may call find() without a lock, for any pointer. Any thread may call enter()
// and remove(), but only one at a time for a range.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "residency/extents.hpp"

namespace tiermem::heap {

struct Chunk;

/// Chunks and large blocks begin at multiples of it.
inline constexpr std::uint64_t kGranule = 65536;

class ChunkTable {
 public:
  ChunkTable();
  ~ChunkTable();
  ChunkTable(const ChunkTable&) = delete;
  ChunkTable& operator=(const ChunkTable&) = delete;

  /// Returns the chunk that was entered for the granule of `address`, or nullptr. Another thread
  /// may remove it before the caller looks at it.
  Chunk* find(const void* address) const noexcept {
    const std::atomic<Chunk*>* const at =
        slot(reinterpret_cast<std::uintptr_t>(address) >> kGranuleBits);
    // Acquire: partner of the store in enter(), which follows the construction of the record.
    return at == nullptr ? nullptr : at->load(std::memory_order_acquire);
  }
  /// Returns false, and enters nothing, if the table cannot be allocated.
  bool enter(const std::byte* begin, std::uint64_t bytes, Chunk* chunk);
  void remove(const std::byte* begin, std::uint64_t bytes);

  /// [forking thread] No other thread may be inside enter() during the fork.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  static constexpr unsigned kAddressBits = 47;
  static constexpr unsigned kGranuleBits = 16;
  static constexpr unsigned kLeafBits = 16;
  static constexpr std::uint64_t kLeaves = 1ull << (kAddressBits - kGranuleBits - kLeafBits);

  struct Leaf : InArena {
    Leaf();
    ReservedArray<std::atomic<Chunk*>> chunks{std::size_t{1} << kLeafBits};
  };
  std::atomic<Chunk*>* slot(std::uint64_t granule) const noexcept {
    const std::uint64_t at = granule >> kLeafBits;
    // Acquire: partner of the store in enter(), so that the leaf is complete.
    Leaf* const leaf = at < kLeaves ? leaves_[at].load(std::memory_order_acquire) : nullptr;
    return leaf == nullptr ? nullptr : &leaf->chunks[granule & ((1u << kLeafBits) - 1)];
  }

  ReservedArray<std::atomic<Leaf*>> leaves_;  // Written under the mutex.
  std::mutex mutex_;
};

}  // namespace tiermem::heap

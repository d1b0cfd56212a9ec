// From an address to the chunk it is in: what tells a heap's block from any other pointer. A table
// of two levels, whose pages exist where addresses were entered.
//
// Threads: find() for any, without a lock, and for any pointer whatever; enter() and remove() for
// any, each range by one at a time.
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

  /// The chunk that was entered for the granule of `address`, or nullptr. It may have been removed
  /// by the time the caller looks at it.
  Chunk* find(const void* address) const noexcept;
  /// False, and nothing entered, when there is no memory for the table.
  bool enter(const std::byte* begin, std::uint64_t bytes, Chunk* chunk);
  void remove(const std::byte* begin, std::uint64_t bytes);

  /// [who forks] Nobody is inside enter() meanwhile.
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
  std::atomic<Chunk*>* slot(std::uint64_t granule) const noexcept;

  ReservedArray<std::atomic<Leaf*>> leaves_;  // Written under the mutex.
  std::mutex mutex_;
};

}  // namespace tiermem::heap

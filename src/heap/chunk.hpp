// The records of a heap's memory: chunks, which are cut into runs of pages, and slabs, runs that
// are cut into blocks of one size. Kept apart from the memory they describe: looking at them
// touches no page of it, which may be on a disk.
//
// Threads: all but `owner` is guarded by the mutex of the shard.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/arena.hpp"
#include "heap/block_sizes.hpp"
#include "heap/page_runs.hpp"
#include "tiermem/types.hpp"

namespace tiermem::heap {

class Heap;
struct Shard;
struct Chunk;

/// Memory as a source gave it, and how it is given back.
struct Piece {
  std::byte* begin = nullptr;  ///< At a multiple of kGranule.
  std::uint64_t bytes = 0;
  Handle buffer = 0;
  ViewRecord view{};  ///< Held, where the memory is to stay where it is.
};

/// A run of pages as blocks of one class. In its shard's list of its class iff free > 0.
/// Invariant: free == number of bits in free_bits.
struct Slab : InArena {
  Slab(Chunk* of, std::uint32_t first, unsigned its_class);

  std::byte* take(std::byte* chunk);
  /// Where the address lies; blocks or more: behind the last.
  std::uint32_t index_of(std::uint32_t offset) const {
    return static_cast<std::uint32_t>((std::uint64_t{offset} * inverse) >> 32);
  }
  bool is_free(std::uint32_t index) const {
    return (free_bits[index / 64] >> (index % 64) & 1) != 0;
  }
  void give_back(std::uint32_t index);

  Chunk* const chunk;
  const std::uint32_t first_page;
  const std::uint32_t size_class;
  const std::uint32_t block_bytes;
  const std::uint32_t inverse;  ///< 2^32 / block_bytes, rounded up: exact for offsets in a slab.
  const std::uint32_t blocks;
  std::uint32_t free;
  Slab* previous = nullptr;
  Slab* next = nullptr;
  std::array<std::uint64_t, kMostSlabBlocks / 64> free_bits{};
};

/// A chunk, or the memory of one large block. Records are used again and never end before the
/// heap: who looks for an address that was freed meanwhile finds a record of something else, not
/// of nothing.
struct Chunk : InArena {
  Chunk(Heap* of, Shard* in) : heap(of), shard(in) {}

  /// Of the runs of a chunk: what begins at each page. Of a slab it is in `slabs`, of a block its
  /// length.
  struct Pages {
    explicit Pages(std::uint32_t n) : runs(n) {}
    PageRuns runs;
    std::array<Slab*, kMostPages> slabs{};          ///< For each page of a slab.
    std::array<std::uint16_t, kMostPages> block{};  ///< For the first page of a block: how many.
  };

  Heap* const heap;
  Shard* const shard;
  Piece piece;                 ///< begin null: the record is spare.
  std::optional<Pages> pages;  ///< Nothing: one large block.
  std::uint32_t live = 0;      ///< Blocks given out.
  unsigned list = 0;           ///< Which of the shard's lists it is in: bit_width(longest run).
  Chunk* previous = nullptr;
  Chunk* next = nullptr;
};

}  // namespace tiermem::heap

// The records of a heap's memory: chunks, which are cut into runs of pages, and slabs, which are
// runs cut into blocks of one size. They are separate from the memory that they describe: reading
// them touches no page of it, because that page may be on a disk.
//
// Threads: the mutex of the shard guards everything except `owner`.
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

/// Memory from a source, and the data needed to return it.
struct Piece {
  std::byte* begin = nullptr;  ///< At a multiple of kGranule.
  std::uint64_t bytes = 0;
  Handle buffer = 0;
  ViewRecord view{};  ///< Held if the memory must not move.
};

/// A run of pages as blocks of one class. It is in its shard's list of its class iff free > 0.
/// Invariant: free == number of bits in free_bits.
struct Slab : InArena {
  Slab(Chunk* of, std::uint32_t first, unsigned its_class);

  std::byte* take(std::byte* chunk);
  /// Returns the index of the block at an offset; an index of `blocks` or more is behind the last
  /// block.
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
  const std::uint32_t inverse;  ///< Just above 2^32 / block_bytes: exact for offsets in a slab.
  const std::uint32_t blocks;
  std::uint32_t free;
  Slab* previous = nullptr;
  Slab* next = nullptr;
  std::array<std::uint64_t, kMostSlabBlocks / 64> free_bits{};
};

/// A chunk, or the memory of one large block. Records are reused and live as long as the heap: a
/// thread that looks up an address that was freed concurrently finds a record of another chunk,
/// never freed memory.
struct Chunk : InArena {
  Chunk(Heap* of, Shard* in) : heap(of), shard(in) {}

  /// The runs of a chunk, by the page where each begins: a slab is in `slabs`, the length of a
  /// block in `block`.
  struct Pages {
    explicit Pages(std::uint32_t n) : runs(n) {}
    PageRuns runs;
    std::array<Slab*, kMostPages> slabs{};  ///< For each page of a slab.
    /// For the first page of a block: its number of pages.
    std::array<std::uint16_t, kMostPages> block{};
  };

  Heap* const heap;
  Shard* const shard;
  Piece piece;                 ///< begin null: the record is spare.
  std::optional<Pages> pages;  ///< Empty: one large block.
  std::uint32_t live = 0;      ///< Number of allocated blocks.
  unsigned list = 0;           ///< The shard's list that contains it: bit_width(longest run).
  Chunk* previous = nullptr;
  Chunk* next = nullptr;
};

}  // namespace tiermem::heap

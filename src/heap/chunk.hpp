// The records of a heap's memory: chunks, which are cut into runs of pages, and slabs, which are
// runs cut into blocks of one size. They are separate from the memory that they describe: reading
// them touches no page of it, because that page may be on a disk.
//
// A block of a slab is in one of three states, which two data together say:
//
//   bit in bits()  byte in out()  the block is
//   1              0              in its slab: free
//   0              1              out: the program has it
//   0              0              kept: in a magazine, or on its way between slab and magazine
//
// The holder of the shard's mutex changes the bit of a block that is not out. The thread that has
// taken a kept block out of a magazine sets the byte. A thread that frees the block clears the byte
// by an atomic exchange, so one of several frees of the same block succeeds.
//
// Threads: any thread may look up a small block without a lock: Chunk::slab_at(), Slab::find(),
// Slab::end_use(). The mutex of the shard guards everything else except constants.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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

/// A small block that is kept, and the byte that says whether it is out.
struct KeptBlock {
  std::byte* begin = nullptr;
  std::atomic<std::uint8_t>* out = nullptr;

  /// Gives the block to the program. Release: a thread that finds the byte set also finds the
  /// block's slab as it is now (Slab::end_use).
  void* use() const noexcept {
    out->store(1, std::memory_order_release);
    return begin;
  }
};

/// A run of pages as blocks of one class. It is in its shard's list of its class iff free > 0.
/// Invariant: free == number of ones in bits().
///
/// The record of a slab lives as long as the heap, and is reused for slabs of the same class only:
/// a thread without a lock may look at a slab that has ended. Each block has a bit and a byte
/// behind the record.
struct Slab {
  /// Throws bad_alloc. The slab has no pages: see begin_at().
  static Slab* make(unsigned size_class);
  static void destroy(Slab* slab) noexcept;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  /// Cuts a run of pages of a chunk into free blocks.
  void begin_at(Chunk& its_chunk, std::uint32_t its_first_page, std::byte* its_begin);
  /// Takes up to `n` free blocks, which are then kept. Returns their number.
  std::uint32_t take(KeptBlock* to, std::uint32_t n);
  /// Frees kept blocks of the slab.
  void put_back(std::span<const KeptBlock> blocks);
  /// Returns whether the byte of a block is one of this slab.
  bool has(const std::atomic<std::uint8_t>* is_out) const noexcept {
    return is_out >= out() && is_out < out() + blocks;
  }

  /// Returns the index of the block that begins at an address, or a number of at least `blocks`.
  /// `at` receives the beginning of the slab that the answer is for.
  std::uint32_t find(const void* address, const std::byte*& at) const noexcept {
    at = begin.load(std::memory_order_acquire);
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - at);
    const auto index = static_cast<std::uint32_t>((offset * inverse) >> 32);
    // Exact for offsets in the slab. No other offset passes, also if the product wraps.
    return index < blocks && std::uint64_t{index} * block_bytes == offset ? index : kNoBlock;
  }
  /// Takes the block from the program. Returns false if it is not out. `at`: from find().
  bool end_use(std::uint32_t index, const std::byte* at) noexcept {
    std::atomic<std::uint8_t>& is_out = out()[index];
    if (is_out.exchange(0, std::memory_order_acq_rel) == 0) {
      return false;
    }
    if (begin.load(std::memory_order_relaxed) == at) [[likely]] {
      return true;
    }
    // The slab has ended since find(), and the record describes another slab: the address is not a
    // block of it. The block that has the byte stays out.
    is_out.store(1, std::memory_order_release);
    return false;
  }
  bool is_out(std::uint32_t index) const noexcept {
    return out()[index].load(std::memory_order_acquire) != 0;
  }
  bool is_free(std::uint32_t index) const { return (bits()[index / 64] >> (index % 64) & 1) != 0; }

  std::atomic<std::uint8_t>* out() const noexcept {
    return reinterpret_cast<std::atomic<std::uint8_t>*>(const_cast<Slab*>(this) + 1);
  }
  std::uint64_t* bits() const noexcept {
    return reinterpret_cast<std::uint64_t*>(out() + (blocks + 7) / 8 * 8);
  }
  std::uint32_t words() const noexcept { return (blocks + 63) / 64; }

  static constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};

  // A free without a lock reads these. They share a cache line.
  std::atomic<std::byte*> begin{nullptr};
  const std::uint32_t inverse;  ///< Just above 2^32 / block_bytes.
  const std::uint32_t block_bytes;
  const std::uint32_t blocks;
  const std::uint32_t size_class;
  // Guarded by the shard's mutex.
  std::uint32_t free = 0;
  std::uint32_t first_page = 0;
  Chunk* chunk = nullptr;
  Slab* previous = nullptr;
  Slab* next = nullptr;

 private:
  explicit Slab(unsigned its_class);
};

/// A chunk, or the memory of one large block. Records are reused and live as long as the heap: a
/// thread that looks up an address that was freed concurrently finds a record of another chunk,
/// never freed memory.
struct Chunk : InArena {
  Chunk(Heap* of, Shard* in) : heap(of), shard(in) {}

  /// The runs of a chunk, by the page where each begins. A slab is in Chunk::slabs.
  struct Pages {
    explicit Pages(std::uint32_t n) : runs(n) {}
    PageRuns runs;
    /// For the first page of a block: its number of pages.
    std::array<std::uint16_t, kMostPages> block{};
  };

  /// Returns the slab of an address in the chunk, or null.
  Slab* slab_at(const void* address) const noexcept {
    // Acquire: partner of the store in set_slab(), so that the record is complete.
    return slabs[slot(address)].load(std::memory_order_acquire);
  }
  void set_slab(std::uint32_t first_page, std::uint32_t n, Slab* slab) noexcept {
    for (std::uint32_t page = first_page; page < first_page + n; ++page) {
      slabs[slot(piece.begin + page * kPage)].store(slab, std::memory_order_release);
    }
  }

  Heap* const heap;
  Shard* const shard;
  Piece piece;                 ///< begin null: the record is spare.
  std::optional<Pages> pages;  ///< Empty: one large block.
  std::uint32_t live = 0;      ///< Number of blocks that are not free.
  unsigned list = 0;           ///< The shard's list that contains it: bit_width(longest run).
  Chunk* previous = nullptr;
  Chunk* next = nullptr;
  /// For each page of a slab. By the number of the page in the address space, so that a lookup need
  /// not know where the chunk begins.
  std::array<std::atomic<Slab*>, kMostPages> slabs{};

 private:
  static std::size_t slot(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address) / kPage % kMostPages;
  }
};

}  // namespace tiermem::heap

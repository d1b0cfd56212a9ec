// A heap: blocks of any size out of memory that a source gives in large pieces. Small blocks are
// cut from slabs, medium ones are runs of pages, both of a chunk; above half a chunk a block has
// memory of its own. A heap never touches the memory it gives out: its records lie elsewhere, so
// blocks may be on a disk, and no pointer of the program leads it astray.
//
// Chunks belong to shards, a thread's blocks come from one of them. A chunk without blocks goes
// back to the source, but for one in each shard.
//
// Threads: any. One short mutex for each shard; none is held while the source is asked.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "heap/chunk.hpp"
#include "heap/chunk_table.hpp"
#include "tiermem/status.hpp"

namespace tiermem::heap {

/// Where a heap's memory comes from. Both calls may wait.
class Source {
 public:
  virtual ~Source() = default;
  /// `bytes`, a multiple of a page, at a multiple of `align` (a power of two of at least
  /// kGranule). What is in them does not matter. `large`: they are one block.
  virtual Result<Piece> take(std::uint64_t bytes, std::uint64_t align, bool large) = 0;
  virtual void give_back(const Piece& piece) = 0;
};

struct HeapOptions {
  std::uint64_t chunk_bytes = std::uint64_t{2} << 20;  ///< A power of two, 256 KiB to 2 MiB.
  unsigned shards = 1;
};

/// In bytes. held >= used.
struct HeapBooks {
  std::uint64_t used = 0;  ///< Of blocks given out, with what rounding added.
  std::uint64_t held = 0;  ///< Of what the source gave.
};

/// What became of a pointer that was to be freed or measured.
enum class Found : std::uint8_t {
  block,    ///< A block begins there.
  foreign,  ///< It is in no memory of this heap: never was, or not any more.
  inside,   ///< It is in a block, and not its begin; or where no block begins.
  freed,    ///< The block that began there was freed.
};

/// Chunks that can serve at least `n` pages are in list bit_width(n) or above.
inline constexpr unsigned kRunLists = std::bit_width(kMostPages) + 1;

struct alignas(64) Shard {
  std::mutex mutex;
  // Guarded by the mutex, with the records of all its chunks:
  std::array<Slab*, kClasses> slabs{};     ///< Those with a free block, of each class.
  std::array<Chunk*, kRunLists> chunks{};  ///< By bit_width(longest free run).
  Chunk* idle = nullptr;                   ///< The chunk without blocks that is kept.
  Chunk* spare = nullptr;                  ///< Records without memory.
  Vector<std::unique_ptr<Chunk>> records;  ///< All of them.
  HeapBooks books;
};

class Heap {
 public:
  /// `source` and `table` outlive the heap; several heaps may share a table. Throws bad_alloc.
  Heap(Source& source, ChunkTable& table, const HeapOptions& options);
  /// Blocks and pieces are the source's to end.
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block of at least `bytes` (0: of 16) at a multiple of `align`, a power of two. Errors: the
  /// source's; no_capacity when there is no memory for the records.
  Result<void*> allocate(std::uint64_t bytes, std::uint64_t align);

  /// `chunk` is what the table said of `block`, which may be any pointer. `bytes`: of the block,
  /// when there is one.
  static Found free(Chunk& chunk, void* block, std::uint64_t& bytes);
  static Found measure(Chunk& chunk, const void* block, std::uint64_t& bytes);

  HeapBooks books();

  /// [who forks] Nobody is inside meanwhile.
  void before_fork();
  void after_fork();

  /// Derives books and lists again from the blocks; false when they disagree. For tests.
  bool test_consistent();

 private:
  /// What a block of some size is made of: one of the three is not 0.
  struct Want {
    unsigned size_class = kClasses;  // kClasses: none.
    std::uint32_t pages = 0;
    std::uint64_t large = 0;  // Bytes.
    std::uint64_t align = kGranule;
  };
  /// Where an address is in a chunk, and of what.
  struct Spot {
    Slab* slab = nullptr;
    std::uint32_t index = 0;  // In the slab.
    std::uint32_t page = 0;
    std::uint64_t bytes = 0;
  };
  Want plan(std::uint64_t bytes, std::uint64_t align) const;
  Shard& home() noexcept;

  Result<void*> allocate_large(const Want& want);
  Result<void*> allocate_in_new_chunk(const Want& want, Shard& shard);
  void* allocate_anywhere(const Want& want);
  bool give_back_idle();

  // With the shard's mutex.
  static void* take(Shard& shard, const Want& want);
  static std::byte* take_run(Shard& shard, std::uint32_t pages, Chunk*& chunk);
  static Slab* new_slab(Shard& shard, unsigned size_class);
  static Found look(const Chunk& chunk, const void* address, Spot& spot);
  static void relist(Shard& shard, Chunk& chunk);
  static void end_run(Shard& shard, Chunk& chunk, std::uint32_t first, std::uint32_t n);
  static void end_slab(Shard& shard, Slab& slab);
  static Piece end_chunk(Shard& shard, Chunk& chunk);
  Chunk* add_record(Shard& shard, const Piece& piece);
  /// What the table is told of; of a large block, which is freed at its begin, no more than that.
  std::uint64_t entered(const Piece& piece) const {
    return std::min(piece.bytes, options_.chunk_bytes);
  }

  Source& source_;
  ChunkTable& table_;
  const HeapOptions options_;
  const std::unique_ptr<Shard[]> shards_;
};

}  // namespace tiermem::heap

// A heap: blocks of any size from memory that a source provides in large pieces. Small blocks are
// cut from slabs, medium blocks are runs of pages; both are parts of a chunk. A block above half a
// chunk has memory of its own. A heap never touches the memory of blocks. Its records are
// elsewhere, so blocks may be on a disk, and a wrong pointer of the program cannot corrupt it.
//
// Chunks belong to shards, and a thread's blocks come from one of them. A chunk without blocks
// returns to the source, except for one in each shard. Threads keep small blocks in magazines
// (magazines.hpp), and reach the heap once for many calls.
//
// Threads: any. Each shard has one short mutex; none is held during a call of the source.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "heap/chunk.hpp"
#include "heap/chunk_table.hpp"
#include "heap/magazines.hpp"
#include "tiermem/status.hpp"

namespace tiermem::heap {

/// The source of a heap's memory. Both calls may wait.
class Source {
 public:
  virtual ~Source() = default;
  /// Returns `bytes`, a multiple of a page, at a multiple of `align` (a power of two of at least
  /// kGranule), with any content. `large`: they are one block.
  virtual Result<Piece> take(std::uint64_t bytes, std::uint64_t align, bool large) = 0;
  virtual void give_back(const Piece& piece) = 0;
};

struct HeapOptions {
  std::uint64_t chunk_bytes = std::uint64_t{2} << 20;  ///< A power of two, 256 KiB to 2 MiB.
  unsigned shards = 1;
  /// Max number of threads with magazines. Each may hold kMagazinesBytes.
  unsigned magazines = 0;
  /// The owner of the heap, by which threads find their magazines, and the places that it serves.
  const void* owner = nullptr;
  std::uint64_t uses = 0;  ///< See Use. No other heap of the owner has the same use.
};

/// The accounting in bytes. Invariant: held >= used.
struct HeapBooks {
  std::uint64_t used = 0;  ///< Bytes of allocated blocks, including rounding. Not those kept.
  std::uint64_t held = 0;  ///< Bytes from the source.
};

/// The result of looking up a pointer to free or measure.
enum class Found : std::uint8_t {
  block,    ///< A block begins there.
  foreign,  ///< It is in no memory of this heap, and either never was or is not any more.
  inside,   ///< It is inside a block, or where no block begins.
  freed,    ///< The block that began there was freed.
};

/// Chunks that can serve at least `n` pages are in list bit_width(n) or above.
inline constexpr unsigned kRunLists = std::bit_width(kMostPages) + 1;

struct alignas(64) Shard {
  std::mutex mutex;
  // Guarded by the mutex, with the records of all its chunks.
  std::array<Slab*, kClasses> slabs{};     ///< Slabs with a free block, by class.
  std::array<Slab*, kClasses> ended{};     ///< Records without pages, by class.
  std::array<Chunk*, kRunLists> chunks{};  ///< By bit_width(longest free run).
  Chunk* idle = nullptr;                   ///< The kept chunk without blocks.
  Chunk* spare = nullptr;                  ///< Records without memory.
  Vector<std::unique_ptr<Chunk>> records;  ///< All of them.
  HeapBooks books;                         ///< `used`: with the blocks that threads keep.
};

class Heap {
 public:
  /// `source` and `table` outlive the heap; several heaps may share a table. Throws bad_alloc.
  Heap(Source& source, ChunkTable& table, const HeapOptions& options);
  /// The owner of the source releases blocks and pieces.
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Allocates a block of at least `bytes` (0: 16) at a multiple of `align`, a power of two.
  /// Errors: those of the source. no_capacity: the allocation of records failed.
  Result<void*> allocate(std::uint64_t bytes, std::uint64_t align);

  /// Returns whether such a block has memory of its own, which the source provides for it alone.
  bool is_large(std::uint64_t bytes, std::uint64_t align) const {
    return plan(bytes, align).large != 0;
  }

  /// Frees a block. `chunk` is the table's result for `block`, which may be any pointer. `bytes`
  /// receives the size of the block, if there is one.
  static Found free(Chunk& chunk, void* block, std::uint64_t& bytes);
  static Found measure(Chunk& chunk, const void* block, std::uint64_t& bytes);

  HeapBooks books();

  /// Gives back what is kept: the blocks in magazines, and the chunks without blocks. Returns
  /// whether memory went back to the source.
  bool give_back_kept();
  /// On: does that, and keeps no blocks until it is off. Waits a bounded time for threads that do
  /// not run. One thread at a time.
  bool press(bool on);
  /// Ends all magazines for good. No call may begin afterwards.
  void end_magazines();

  /// [forking thread] No other thread may be inside the heap during the fork.
  void before_fork();
  void after_fork();
  /// [child of fork] Frees the blocks that threads of the parent kept.
  void recover();

  /// Derives accounting and lists again from the blocks; returns false if they differ. For tests;
  /// no thread may be inside the heap or its magazines.
  bool test_consistent();

 private:
  friend class Magazines;

  /// The kind of memory for a block of some size: exactly one of the three members is set.
  struct Want {
    unsigned size_class = kClasses;  // kClasses: not set.
    std::uint32_t pages = 0;
    std::uint64_t large = 0;  // Bytes of a large block.
    std::uint64_t align = kGranule;
  };
  /// The position of an address in a chunk.
  struct Spot {
    Slab* slab = nullptr;
    std::uint32_t index = 0;  // Index in the slab.
    std::uint32_t page = 0;
    std::uint64_t bytes = 0;
  };
  Want plan(std::uint64_t bytes, std::uint64_t align) const;
  Shard& home() noexcept;

  Result<void*> allocate_large(const Want& want);
  void* allocate_batch(unsigned size_class, Magazines& mine);
  Result<void*> allocate_in_new_chunk(const Want& want, Shard& shard);
  void* allocate_anywhere(const Want& want);
  bool give_back_idle();
  void keep(const KeptBlock& block, unsigned size_class);
  bool put_back(const Batch& batch);
  void recover(Shard& shard, Chunk& chunk);

  // Requires the shard's mutex.
  static void* take(Shard& shard, const Want& want);
  static std::uint32_t take_small(Shard& shard, unsigned size_class, KeptBlock* to,
                                  std::uint32_t n);
  static std::byte* take_run(Shard& shard, std::uint32_t pages, Chunk*& chunk);
  static Slab* new_slab(Shard& shard, unsigned size_class);
  static void begin_blocks(Shard& shard, Chunk& chunk, std::uint32_t n, std::uint64_t bytes);
  static Piece put_back(Shard& shard, Slab& slab, std::span<const KeptBlock> blocks);
  static Piece end_blocks(Shard& shard, Chunk& chunk, std::uint32_t n);
  static Found look(const Chunk& chunk, const void* address, Spot& spot);
  static void relist(Shard& shard, Chunk& chunk);
  static void end_run(Shard& shard, Chunk& chunk, std::uint32_t first, std::uint32_t n);
  static void end_slab(Shard& shard, Slab& slab);
  static Piece end_chunk(Shard& shard, Chunk& chunk);
  Chunk* add_record(Shard& shard, const Piece& piece);
  /// Returns the number of bytes to enter in the table. A large block is freed by its start
  /// address, so at most its first chunk_bytes are entered.
  std::uint64_t entered(const Piece& piece) const {
    return std::min(piece.bytes, options_.chunk_bytes);
  }

  Source& source_;
  ChunkTable& table_;
  const HeapOptions options_;
  const std::unique_ptr<Shard[]> shards_;
  // Guarded by the mutex of all Magazines, which alone use them.
  bool keeps_ = true;
  unsigned bound_ = 0;   // Number of threads with magazines.
  unsigned ending_ = 0;  // Number of threads that end, and are emptying theirs.
};

}  // namespace tiermem::heap

// The size classes are 16, 32, 48, 64, 96, 128 … 32768: powers of two and the midpoints between
// them. A class takes runs of 64 KiB from a shared 1 MiB chunk. It allocates blocks from a bump
// pointer first, then from its list of freed blocks. Runs start at multiples of 64 KiB, so a block
// of a power-of-two class is aligned to its own size. Larger alignments thus need no headers.
//
// The reserve is one mapping. Runs of pages are cut from it when the kernel refuses memory; a freed
// run is treated like any other. Until it is freed, only threads of ReserveScope use it: a chunk or
// a run from the reserve is marked, and other threads take nothing from it.
//
// In an enclosed arena, chunks and large blocks are cut from one range. Large blocks are powers of
// two there. A freed one releases its pages and waits, by size, for the next request.
//
// Lock order: a class, then the chunk, then the range or the reserve. Never calls malloc, never
// throws.
#include "base/arena.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <mutex>

#include "base/arena_reserve.hpp"
#include "base/checked.hpp"
#include "base/plain_mapping.hpp"
#include "base/results.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TIERMEM_ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIERMEM_ARENA_ASAN 1
#endif
#endif
#if defined(TIERMEM_ARENA_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace tiermem {

namespace detail {
__thread ThreadMark thread_mark __attribute__((tls_model("initial-exec")));
constinit std::uintptr_t arena_begin = 0;
constinit std::atomic<std::uintptr_t> arena_bytes{0};
}  // namespace detail

namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kRunBytes = std::size_t{64} << 10;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kClasses = 22;

constexpr std::array<std::uint32_t, kClasses> kClassBytes = {
    16,   32,   48,   64,   96,   128,  192,  256,   384,   512,   768,
    1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/// Freed blocks are poisoned under ASan, so that it finds a use after free inside tiermem as it
/// does for malloc. Chunks are roots for the leak checker, because some objects are reachable only
/// from them.
void poison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIERMEM_ARENA_ASAN)
  ASAN_POISON_MEMORY_REGION(block, bytes);
#endif
}
void unpoison([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIERMEM_ARENA_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#endif
}
void add_leak_root([[maybe_unused]] void* start, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIERMEM_ARENA_ASAN)
  __lsan_register_root_region(start, bytes);
#endif
}
void remove_leak_root([[maybe_unused]] void* start, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TIERMEM_ARENA_ASAN)
  __lsan_unregister_root_region(start, bytes);
#endif
}

struct FreeBlock {
  FreeBlock* next;
};

/// Invariant: live == number of allocated blocks. Every byte of a run is in one of four places: in
/// a live block, in `freed`, between `bump` and `bump_end`, or in a tail that is too small for a
/// block.
struct SizeClass {
  std::mutex mutex;
  FreeBlock* freed = nullptr;  // Guarded by mutex, as are all members below.
  std::byte* bump = nullptr;   // Next block that was never allocated.
  std::byte* bump_end = nullptr;
  bool of_reserve = false;  // The run at `bump` is from the reserve.
  std::uint64_t live = 0;
};

struct ChunkSource {
  std::mutex mutex;
  std::byte* next = nullptr;  // Next unused run of the newest chunk.
  std::byte* end = nullptr;
  bool of_reserve = false;  // The newest chunk is from the reserve.
  std::uint64_t mapped = 0;
};

// Constant-initialised and never destroyed: usable before main and after exit handlers.
constinit std::array<SizeClass, kClasses> g_classes{};
constinit ChunkSource g_chunks{};
// Written by allocating threads, read by arena_stats. Relaxed, because they order nothing.
constinit std::atomic<std::uint64_t> g_large_bytes{0};
constinit std::atomic<std::uint64_t> g_large_blocks{0};

/// Invariant: next <= end; every large block below `next` is allocated, or is in `freed` by its
/// order.
struct Range {
  std::mutex mutex;
  std::byte* next = nullptr;  // Guarded by mutex, as are all members below.
  std::byte* end = nullptr;
  std::array<FreeBlock*, 48> freed{};
};
constinit Range g_range{};

/// The unused part is [next, end).
struct Reserve {
  std::mutex mutex;
  std::byte* next = nullptr;  // Guarded by mutex, as are all members below.
  std::byte* end = nullptr;
  // Relaxed: a reader then asks the kernel for more memory, a little earlier or later.
  std::atomic<bool> in_use{false};
};
constexpr std::size_t kReserveBytes = std::size_t{4} << 20;
constinit Reserve g_reserve{};

bool enclosed() {
  return arena_is_enclosed();
}

/// Cuts address space from the range at a multiple of `align`, and makes it accessible.
std::byte* cut_range(std::size_t bytes, std::size_t align) noexcept {
  const std::lock_guard lock(g_range.mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(g_range.next);
  const std::size_t head = (align - at % align) % align;
  if (static_cast<std::size_t>(g_range.end - g_range.next) < head ||
      static_cast<std::size_t>(g_range.end - g_range.next) - head < bytes ||
      mprotect(g_range.next + head, bytes, PROT_READ | PROT_WRITE) != 0) {
    return nullptr;
  }
  std::byte* const block = g_range.next + head;
  g_range.next = block + bytes;
  best_effort(madvise(block, bytes, MADV_DODUMP), "a core dump then lacks the block");
  return block;
}

void give_large(void* block, unsigned order) noexcept {
  best_effort(madvise(static_cast<std::byte*>(block) + kPage, (std::size_t{1} << order) - kPage,
                      MADV_DONTNEED),
              "the memory is given back later");
  const std::lock_guard lock(g_range.mutex);
  auto* const freed = static_cast<FreeBlock*>(block);
  freed->next = g_range.freed[order];
  g_range.freed[order] = freed;
}

unsigned large_order(std::size_t bytes) {
  return static_cast<unsigned>(std::bit_width((bytes > kPage ? bytes : kPage) - 1));
}

std::size_t large_bytes(std::size_t bytes) {
  return enclosed() ? std::size_t{1} << large_order(bytes) : round_up(bytes, kPage);
}

/// Maps pages at a multiple of `align`, and unmaps the excess.
std::byte* map_aligned(std::size_t bytes, std::size_t align) noexcept {
  const std::size_t spare = align > kPage ? align - kPage : 0;
  if (bytes + spare < bytes) {
    return nullptr;
  }
  void* start = mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kLeaveToKernel, -1, 0);
  if (start == MAP_FAILED) {
    return nullptr;
  }
  auto* const first = static_cast<std::byte*>(start);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t head = (align - address % align) % align;
  if (head > 0) {
    best_effort(munmap(first, head), "what is not unmapped stays reserved");
  }
  if (spare > head) {
    best_effort(munmap(first + head + bytes, spare - head), "what is not unmapped stays reserved");
  }
  return first + head;
}

std::byte* cut_reserve(std::size_t bytes, std::size_t align) noexcept {
  const std::lock_guard lock(g_reserve.mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(g_reserve.next);
  const std::size_t head = (align - at % align) % align;
  if (static_cast<std::size_t>(g_reserve.end - g_reserve.next) < head + bytes) {
    return nullptr;
  }
  std::byte* const block = g_reserve.next + head;
  g_reserve.next = block + bytes;
  g_reserve.in_use.store(true, std::memory_order_relaxed);
  return block;
}

bool may_use_reserve() noexcept {
  return (detail::thread_mark.depth & kMayUseReserve) != 0;
}

/// Returns `bytes` of whole pages from the kernel or, for threads of ReserveScope, from the
/// reserve.
std::byte* map_or_cut(std::size_t bytes, std::size_t align, bool& of_reserve) noexcept {
  std::byte* const block = enclosed() ? cut_range(bytes, align) : map_aligned(bytes, align);
  of_reserve = block == nullptr && may_use_reserve();
  return of_reserve ? cut_reserve(bytes, align) : block;
}

/// Takes a block of 2^order bytes. A freed block keeps its first page, which links it to the
/// others.
std::byte* take_large(unsigned order, std::size_t align) noexcept {
  {
    const std::lock_guard lock(g_range.mutex);
    FreeBlock*& freed = g_range.freed[order];
    if (freed != nullptr && reinterpret_cast<std::uintptr_t>(freed) % align == 0) {
      auto* const block = reinterpret_cast<std::byte*>(freed);
      freed = freed->next;
      return block;
    }
  }
  bool of_reserve = false;
  return map_or_cut(std::size_t{1} << order, align, of_reserve);
}

/// Returns the class of blocks that hold `bytes` at `align`, or kClasses if such a block is mapped
/// on its own.
std::size_t class_of(std::size_t bytes, std::size_t align) noexcept {
  if (align > kArenaAlign) {
    // Only power-of-two blocks are aligned to their size.
    const std::size_t larger = bytes > align ? bytes : align;
    if (larger > kArenaLargestClass) {
      return kClasses;
    }
    bytes = std::bit_ceil(larger);
  }
  if (bytes <= 32) {
    return bytes <= 16 ? 0 : 1;
  }
  if (bytes > kArenaLargestClass) {
    return kClasses;
  }
  // Within (2^k, 2^(k+1)], the lower half uses blocks of 1.5 * 2^k.
  const std::size_t k = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
  const std::size_t index = 2 + 2 * (k - 5);
  return bytes <= (std::size_t{3} << (k - 1)) ? index : index + 1;
}

std::byte* take_run(bool& of_reserve) noexcept {
  const std::lock_guard lock(g_chunks.mutex);
  if (g_chunks.next == g_chunks.end || (g_chunks.of_reserve && !may_use_reserve())) {
    bool is_of_reserve = false;
    std::byte* const chunk = map_or_cut(kChunkBytes, kRunBytes, is_of_reserve);
    if (chunk == nullptr) {
      return nullptr;
    }
    g_chunks.of_reserve = is_of_reserve;
    add_leak_root(chunk, kChunkBytes);
    poison(chunk, kChunkBytes);
    g_chunks.next = chunk;
    g_chunks.end = chunk + kChunkBytes;
    g_chunks.mapped += kChunkBytes;
  }
  std::byte* const run = g_chunks.next;
  of_reserve = g_chunks.of_reserve;
  g_chunks.next += kRunBytes;
  return run;
}

void* take_block(std::size_t index) noexcept {
  const std::size_t bytes = kClassBytes[index];
  SizeClass& own = g_classes[index];
  const std::lock_guard lock(own.mutex);
  if (own.freed != nullptr) {
    FreeBlock* const block = own.freed;
    unpoison(block, bytes);
    own.freed = block->next;
    ++own.live;
    return block;
  }
  if (static_cast<std::size_t>(own.bump_end - own.bump) < bytes ||
      (own.of_reserve && !may_use_reserve())) {
    bool of_reserve = false;
    std::byte* const run = take_run(of_reserve);
    if (run == nullptr) {
      return nullptr;
    }
    own.of_reserve = of_reserve;
    own.bump = run;
    own.bump_end = run + kRunBytes;
  }
  std::byte* const block = own.bump;
  own.bump += bytes;
  unpoison(block, bytes);
  ++own.live;
  return block;
}

}  // namespace

void* arena_allocate(std::size_t bytes, std::size_t align) noexcept {
  assert(std::has_single_bit(align));
  const std::size_t index = class_of(bytes, align);
  if (index < kClasses) {
    return take_block(index);
  }
  if (bytes > std::size_t{1} << 46) {
    return nullptr;
  }
  const std::size_t length = large_bytes(bytes);
  bool of_reserve = false;
  std::byte* const block =
      enclosed() ? take_large(large_order(bytes), align) : map_or_cut(length, align, of_reserve);
  if (block != nullptr) {
    add_leak_root(block, length);
    g_large_bytes.fetch_add(length, std::memory_order_relaxed);
    g_large_blocks.fetch_add(1, std::memory_order_relaxed);
  }
  return block;
}

void arena_free(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) {
    return;
  }
  const std::size_t index = class_of(bytes, align);
  if (index == kClasses) {
    const std::size_t length = large_bytes(bytes);
    remove_leak_root(block, length);
    if (enclosed()) {
      give_large(block, large_order(bytes));
    } else {
      best_effort(munmap(block, length), "what is not unmapped stays reserved");
    }
    g_large_bytes.fetch_sub(length, std::memory_order_relaxed);
    g_large_blocks.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  SizeClass& own = g_classes[index];
  const std::lock_guard lock(own.mutex);
  auto* const freed = static_cast<FreeBlock*>(block);
  freed->next = own.freed;
  own.freed = freed;
  --own.live;
  poison(block, kClassBytes[index]);
}

bool arena_enclose(std::size_t bytes) noexcept {
  for (; bytes >= 64 * kChunkBytes; bytes /= 2) {
    void* const start = mmap(nullptr, bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kLeaveToKernel, -1, 0);
    if (start != MAP_FAILED) {
      best_effort(madvise(start, bytes, MADV_DONTDUMP), "core dumps then are larger");
      g_range.next = static_cast<std::byte*>(start);
      g_range.end = g_range.next + bytes;
      detail::arena_begin = reinterpret_cast<std::uintptr_t>(start);
      detail::arena_bytes.store(bytes, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

void arena_shrink(std::size_t bytes) noexcept {
  const std::lock_guard lock(g_range.mutex);
  const auto begin = reinterpret_cast<std::byte*>(detail::arena_begin);
  std::byte* const end = std::max(g_range.next, begin + round_up(bytes, kPage));
  if (!enclosed() || end >= g_range.end) {
    return;
  }
  // Store this first: another mapping may take the addresses at once.
  detail::arena_bytes.store(static_cast<std::size_t>(end - begin), std::memory_order_relaxed);
  best_effort(munmap(end, static_cast<std::size_t>(g_range.end - end)),
              "what is not unmapped stays reserved");
  g_range.end = end;
}

bool arena_fill_reserve() noexcept {
  const std::lock_guard lock(g_reserve.mutex);
  const auto left = static_cast<std::size_t>(g_reserve.end - g_reserve.next);
  if (left == kReserveBytes) {
    return true;
  }
  std::byte* const anew =
      enclosed() ? cut_range(kReserveBytes, kPage) : map_aligned(kReserveBytes, kPage);
  if (anew == nullptr) {
    return false;
  }
  if (left != 0 && !enclosed()) {  // An enclosed arena loses only addresses.
    best_effort(munmap(g_reserve.next, left), "what is not unmapped stays reserved");
  }
  g_reserve.next = anew;
  g_reserve.end = anew + kReserveBytes;
  g_reserve.in_use.store(false, std::memory_order_relaxed);
  return true;
}

bool arena_uses_reserve() noexcept {
  return g_reserve.in_use.load(std::memory_order_relaxed);
}

ArenaStats arena_stats() noexcept {
  ArenaStats stats;
  for (std::size_t index = 0; index < kClasses; ++index) {
    SizeClass& own = g_classes[index];
    const std::lock_guard lock(own.mutex);
    stats.blocks += own.live;
    stats.live += own.live * kClassBytes[index];
  }
  const std::uint64_t large = g_large_bytes.load(std::memory_order_relaxed);
  stats.live += large;
  stats.blocks += g_large_blocks.load(std::memory_order_relaxed);
  const std::lock_guard lock(g_chunks.mutex);
  stats.mapped = g_chunks.mapped + large;
  return stats;
}

void arena_before_fork() noexcept {
  for (SizeClass& own : g_classes) {
    own.mutex.lock();
  }
  g_chunks.mutex.lock();
  g_range.mutex.lock();
  g_reserve.mutex.lock();
}

void arena_after_fork() noexcept {
  g_reserve.mutex.unlock();
  g_range.mutex.unlock();
  g_chunks.mutex.unlock();
  for (SizeClass& own : g_classes) {
    own.mutex.unlock();
  }
}

}  // namespace tiermem

// The internal arena: memory for tiermem itself. It is mapped from the kernel and never taken from
// malloc, so a preloaded tiermem does not fault on its own records. Small blocks come from size
// classes over 1 MiB chunks; each larger block is mapped on its own. Chunks are kept for the life
// of the process.
//
// Threads: any. Each size class has one mutex, held for a few instructions and never across a fault
// that tiermem serves. The owner of the process calls the two fork functions below around fork().
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tiermem {

namespace detail {
// __thread instead of thread_local, because it has no initialisation wrapper. The initial-exec
// model reads it in one instruction and never calls the dynamic linker, which may itself allocate.
struct alignas(8) ThreadMark {
  unsigned depth = 0;         // Nesting depth of ArenaScope.
  unsigned malloc_ready = 0;  // 1: an interposed malloc has decided where the thread's blocks are.
};
extern __thread ThreadMark thread_mark __attribute__((tls_model("initial-exec")));
}  // namespace detail

/// Returns true while this thread works for tiermem: an interposed malloc then allocates from the
/// arena.
inline bool inside_tiermem() noexcept {
  return detail::thread_mark.depth != 0;
}
/// Returns true if the thread is ready and not inside tiermem. An interposed malloc asks on every
/// call.
inline bool malloc_is_ready() noexcept {
  return std::bit_cast<std::uint64_t>(detail::thread_mark) ==
         std::bit_cast<std::uint64_t>(detail::ThreadMark{0, 1});
}
inline void set_malloc_ready() noexcept {
  detail::thread_mark.malloc_ready = 1;
}

/// Marks the calling thread as inside tiermem for the life of the object. Scopes nest.
class ArenaScope {
 public:
  ArenaScope() noexcept { ++detail::thread_mark.depth; }
  ~ArenaScope() { --detail::thread_mark.depth; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
};

inline constexpr std::size_t kArenaAlign = 16;  ///< Min alignment of every block.
/// Larger blocks are mapped on their own, and unmapped when freed.
inline constexpr std::size_t kArenaLargestClass = 32768;

/// Allocates uninitialised bytes; `align` is a power of two. Returns nullptr if the kernel refuses
/// memory.
void* arena_allocate(std::size_t bytes, std::size_t align = kArenaAlign) noexcept;
/// Frees a block; nullptr is accepted. Pass the same `bytes` and `align` as for the allocation,
/// because blocks have no header.
void arena_free(void* block, std::size_t bytes, std::size_t align = kArenaAlign) noexcept;

/// Confines the arena to one range of address space from now on: `bytes`, or less if the kernel
/// refuses that much. When the range is used up, the arena is full. Call once, before the first
/// thread uses the arena. Returns false if no range is available; the arena then works as before.
bool arena_enclose(std::size_t bytes) noexcept;

/// Releases the part of the range above `bytes`, except addresses that were ever in use. Does
/// nothing if the arena is not enclosed. Any thread.
void arena_shrink(std::size_t bytes) noexcept;

namespace detail {
extern std::uintptr_t arena_begin;  // Constant once enclosed.
// Relaxed: a block that a thread knows was cut before any shrink, so it is below the new end too.
extern std::atomic<std::uintptr_t> arena_bytes;
}  // namespace detail
/// Returns whether arena_enclose() succeeded.
inline bool arena_is_enclosed() noexcept {
  return detail::arena_bytes.load(std::memory_order_relaxed) != 0;
}
/// Returns whether `block` belongs to the enclosed arena.
inline bool arena_contains(const void* block) noexcept {
  return reinterpret_cast<std::uintptr_t>(block) - detail::arena_begin <
         detail::arena_bytes.load(std::memory_order_relaxed);
}

/// Invariant: mapped >= live. Classes round sizes up, and freed small blocks wait for the next
/// request.
struct ArenaStats {
  std::uint64_t mapped = 0;  ///< Bytes obtained from the kernel and not returned.
  std::uint64_t live = 0;    ///< Bytes in allocated blocks, rounded up to their class.
  std::uint64_t blocks = 0;  ///< Number of allocated blocks.
};
/// Exact only if no other thread allocates during the call.
ArenaStats arena_stats() noexcept;

/// The first takes every lock of the arena, so that a child of fork() finds it consistent. The
/// second releases them, in parent and child. The forking thread calls both.
void arena_before_fork() noexcept;
void arena_after_fork() noexcept;

/// A standard allocator over the arena. Throws std::bad_alloc, as containers expect.
template <typename T>
struct ArenaAllocator {
  using value_type = T;
  ArenaAllocator() noexcept = default;
  template <typename U>
  ArenaAllocator(const ArenaAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    void* block = arena_allocate(count * sizeof(T), alignof(T));
    if (block == nullptr) {
      throw std::bad_alloc();
    }
    return static_cast<T*>(block);
  }
  void deallocate(T* block, std::size_t count) noexcept {
    arena_free(block, count * sizeof(T), alignof(T));
  }
  template <typename U>
  bool operator==(const ArenaAllocator<U>&) const noexcept {
    return true;
  }
};

/// Base class for objects made with `new`: they are allocated in the arena.
struct InArena {
  static void* operator new(std::size_t bytes) {
    void* block = arena_allocate(bytes);
    if (block == nullptr) {
      throw std::bad_alloc();
    }
    return block;
  }
  static void operator delete(void* block, std::size_t bytes) noexcept { arena_free(block, bytes); }
};

template <typename T>
using Vector = std::vector<T, ArenaAllocator<T>>;
template <typename T>
using Deque = std::deque<T, ArenaAllocator<T>>;
template <typename K, typename V, typename Less = std::less<K>>
using Map = std::map<K, V, Less, ArenaAllocator<std::pair<const K, V>>>;
template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>>
using HashMap = std::unordered_map<K, V, Hash, Equal, ArenaAllocator<std::pair<const K, V>>>;
template <typename K, typename Less = std::less<K>>
using Set = std::set<K, Less, ArenaAllocator<K>>;
using String = std::basic_string<char, std::char_traits<char>, ArenaAllocator<char>>;

}  // namespace tiermem

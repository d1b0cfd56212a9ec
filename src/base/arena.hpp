// The internal arena: memory for tiermem itself, mapped from the kernel and never taken from
// malloc, so that a preloaded tiermem does not fault on its own books. Small blocks come from size
// classes over 1 MiB chunks, larger ones are mapped each. Chunks are kept for the life of the
// process.
//
// Threads: any; one mutex for each size class, held for a few instructions, never across a fault
// that tiermem serves. Around fork the owner of the process calls the two fork functions below.
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
// __thread, not thread_local: no initialisation wrapper. Initial-exec: one instruction to read it,
// and no call into the dynamic linker, which may itself allocate.
struct alignas(8) ThreadMark {
  unsigned depth = 0;         // Of ArenaScope.
  unsigned malloc_ready = 0;  // 1: an interposed malloc has settled where the thread's blocks are.
};
extern __thread ThreadMark thread_mark __attribute__((tls_model("initial-exec")));
}  // namespace detail

/// True while this thread works for tiermem: an interposed malloc then takes from the arena.
inline bool inside_tiermem() noexcept {
  return detail::thread_mark.depth != 0;
}
/// For an interposed malloc, whose every call asks: the thread is ready, and not inside tiermem.
inline bool malloc_is_ready() noexcept {
  return std::bit_cast<std::uint64_t>(detail::thread_mark) ==
         std::bit_cast<std::uint64_t>(detail::ThreadMark{0, 1});
}
inline void set_malloc_ready() noexcept {
  detail::thread_mark.malloc_ready = 1;
}

/// Marks the calling thread as inside tiermem for the life of the object. Nests.
class ArenaScope {
 public:
  ArenaScope() noexcept { ++detail::thread_mark.depth; }
  ~ArenaScope() { --detail::thread_mark.depth; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
};

inline constexpr std::size_t kArenaAlign = 16;  ///< What every block has at least.
inline constexpr std::size_t kArenaLargestClass =
    32768;  ///< Above this: mapped, given back at once.

/// `align` is a power of two. Uninitialised bytes; nullptr when the kernel has none.
void* arena_allocate(std::size_t bytes, std::size_t align = kArenaAlign) noexcept;
/// `bytes` and `align` as they were asked for: blocks have no header. nullptr is accepted.
void arena_free(void* block, std::size_t bytes, std::size_t align = kArenaAlign) noexcept;

/// From now on the arena's memory lies in one range of `bytes` of address space, or of less where
/// so much is refused; beyond it the arena is full. Once, before the first thread uses it. False
/// when there is no range: all goes on as before.
bool arena_enclose(std::size_t bytes) noexcept;

/// Gives back what the range has above `bytes`, but nothing of what was ever in use. Nothing to do
/// where the arena is not enclosed. Any thread.
void arena_shrink(std::size_t bytes) noexcept;

namespace detail {
extern std::uintptr_t arena_begin;  // Constant once enclosed.
// Relaxed: a block that a thread knows was cut before a shrink, and is below the new end, too.
extern std::atomic<std::uintptr_t> arena_bytes;
}  // namespace detail
/// Has arena_enclose() succeeded?
inline bool arena_is_enclosed() noexcept {
  return detail::arena_bytes.load(std::memory_order_relaxed) != 0;
}
/// Is `block` one of the enclosed arena's?
inline bool arena_contains(const void* block) noexcept {
  return reinterpret_cast<std::uintptr_t>(block) - detail::arena_begin <
         detail::arena_bytes.load(std::memory_order_relaxed);
}

/// mapped >= live: classes round up, and freed small blocks wait for the next request.
struct ArenaStats {
  std::uint64_t mapped = 0;  ///< Bytes obtained from the kernel and not given back.
  std::uint64_t live = 0;    ///< Bytes in blocks given out, rounded up to their class.
  std::uint64_t blocks = 0;  ///< Blocks given out.
};
/// Exact when no other thread allocates meanwhile.
ArenaStats arena_stats() noexcept;

/// Takes every lock of the arena, so that a child of fork finds it whole; the second releases them,
/// in parent and child alike. Called by the thread that forks.
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

/// A base for objects made with `new`: they lie in the arena.
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

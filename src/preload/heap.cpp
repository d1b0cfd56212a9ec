// The extent hooks, and the arenas that use them.
#include "preload/heap.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/arena.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"
#include "preload/jemalloc.hpp"
#include "preload/kernel.hpp"
#include "preload/region.hpp"
#include "preload/tiering.hpp"

// jemalloc reads this when it starts. It makes one arena by itself, which is never tiered. It keeps
// freed pages for a while, then empties their extents. It never returns the addresses.
extern "C" {
__attribute__((visibility("hidden"))) const char* tiermem_je_malloc_conf =
    "narenas:1,oversize_threshold:0,dirty_decay_ms:5000,muzzy_decay_ms:0";

// jemalloc's own, and not of its interface: the map of all its extents.
extern char je_arena_emap_global[];
void je_malloc_mutex_postfork_child(void* thread, void* mutex);
}

namespace tiermem::preload {
namespace {

// Whether jemalloc has started. The mutex is held while it starts, and during a fork.
constinit std::atomic<bool> g_started{false};
constinit std::mutex g_starting;
/// jemalloc's part of a fork. jemalloc would register these when it starts, behind handlers of the
/// program that call malloc. Written under the mutex.
struct ForkHandlers {
  void (*before)() = nullptr;
  void (*in_parent)() = nullptr;
  void (*in_child)() = nullptr;
};
constinit ForkHandlers g_at_fork{};
// jemalloc 5.3 makes its locks anew in a child, except for that of its map of extents: a child
// could wait for a thread that was adding to the map. The data behind it are right at each
// instant. It is behind a pointer (rtree_s); versions without this map do not link.
constexpr std::size_t kLockOfMap = sizeof(void*);

/// Address space that extents are cut from, lowest first. jemalloc never returns an extent.
struct Source {
  const bool large;          // Whether the regions have large extents; otherwise small ones.
  const std::size_t region;  // Minimum bytes of a region.
  std::mutex mutex{};
  std::byte* begin = nullptr;  // Guarded by mutex, as the next two: the newest region,
  std::byte* next = nullptr;   // where its uncut rest begins,
  std::byte* end = nullptr;    // and its end.

  std::size_t extent() const { return large ? large_extent() : kSmallExtent; }
};
constinit Source g_small{.large = false, .region = std::size_t{256} << 20};
constinit Source g_medium{.large = true, .region = std::size_t{1} << 30};

std::byte* aligned(std::byte* address, std::size_t alignment) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return address + (alignment - number % alignment) % alignment;
}

std::byte* plain_extent(std::size_t bytes, std::size_t alignment) {
  const std::size_t spare = alignment > 4096 ? alignment : 0;
  void* const start = tiermem_plain_mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    return nullptr;
  }
  auto* const first = static_cast<std::byte*>(start);
  std::byte* const block = aligned(first, alignment);
  const auto head = static_cast<std::size_t>(block - first);
  if (head > 0) {
    best_effort(tiermem_plain_munmap(first, head), "what is not unmapped stays reserved");
  }
  if (spare > head) {
    best_effort(tiermem_plain_munmap(block + bytes, spare - head),
                "what is not unmapped stays reserved");
  }
  return block;
}

// Call it with the mutex held.
bool add_region(Source& source, std::size_t bytes) {
  std::byte* const region = create_region(Use::heap, 0, bytes, source.extent());
  if (region == nullptr) {
    return false;
  }
  source.begin = source.next = region;
  source.end = region + bytes;
  return true;
}

std::byte* cut(Source& source, std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(source.mutex);
  const auto fits = [&] {
    std::byte* const block = aligned(source.next, alignment);
    return source.next != nullptr && block <= source.end &&
           static_cast<std::size_t>(source.end - block) >= bytes;
  };
  if (!fits()) {
    // With limited address space, the program needs most of it.
    const std::size_t usual = std::min<std::size_t>(source.region, host::address_space_left() / 32);
    const std::size_t least = bytes + alignment;
    if (!add_region(source, std::max(usual, least)) && !add_region(source, least)) {
      return nullptr;
    }
  }
  std::byte* const block = aligned(source.next, alignment);
  source.next = block + bytes;
  resize_region(source.begin, static_cast<std::size_t>(source.next - source.begin));
  return block;
}

void* take_extent(Source& source, void* at, std::size_t bytes, std::size_t alignment, bool* zero,
                  bool* commit) {
  if (at != nullptr) {
    return nullptr;  // jemalloc asks for a given address.
  }
  std::byte* block = nullptr;
  if (tiered(bytes)) {
    const ArenaScope inside;
    block = cut(source, bytes, alignment);
  }
  if (block == nullptr) {
    block = plain_extent(bytes, alignment);
  }
  *zero = *commit = block != nullptr;
  return block;
}

// Empties whole extents only; the others keep their bytes. jemalloc is told that the range may not
// be zero, which covers both.
bool empty_extents(Source& source, std::byte* begin, std::size_t bytes) {
  if (!touches_regions(begin, bytes)) {
    return tiermem_plain_madvise(begin, bytes, MADV_DONTNEED) != 0;
  }
  const ArenaScope inside;
  std::byte* const end = begin + bytes;
  const std::size_t extent = source.extent();
  for (std::byte* at = aligned(begin, extent); at + extent <= end;) {
    Region region;
    if (!find_region(at, region)) {
      best_effort(tiermem_plain_madvise(at, extent, MADV_DONTNEED),
                  "the memory is given back later");
      at += extent;
      continue;
    }
    const auto left = static_cast<std::size_t>(std::min(end, region.begin + region.capacity) - at);
    const std::size_t length = left / extent * extent;
    const Access access{
        region.buffer, static_cast<std::uint64_t>(at - region.begin), length, kDiscard, {}, 0};
    (void)context()->advise({&access, 1}, Advice::dont_need);
    at += std::max(length, extent);
  }
  return true;
}

template <Source& source>
constexpr ExtentHooks hooks_of() {
  ExtentHooks hooks{};
  hooks.alloc = [](ExtentHooks*, void* at, std::size_t bytes, std::size_t alignment, bool* zero,
                   bool* commit,
                   unsigned) { return take_extent(source, at, bytes, alignment, zero, commit); };
  hooks.purge_forced = [](ExtentHooks*, void* begin, std::size_t, std::size_t offset,
                          std::size_t length, unsigned) {
    return empty_extents(source, static_cast<std::byte*>(begin) + offset, length);
  };
  // jemalloc may split and merge extents freely, because emptying goes by address.
  hooks.split = [](ExtentHooks*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) {
    return false;
  };
  hooks.merge = [](ExtentHooks*, void*, std::size_t, void*, std::size_t, bool, unsigned) {
    return false;
  };
  return hooks;
}
constinit ExtentHooks g_small_hooks = hooks_of<g_small>();
constinit ExtentHooks g_medium_hooks = hooks_of<g_medium>();

constexpr unsigned kMostArenas = 64;
/// An arena of jemalloc that is made at its first use, because most processes use only one. If two
/// threads make it at once, the arena of one remains unused; no thread waits, so fork() is safe.
class LazyArena {
 public:
  /// Returns jemalloc's number of the arena; 0, the plain arena, if it could not be made.
  unsigned number(ExtentHooks& hooks);

 private:
  static constexpr unsigned kNone = ~0U;
  std::atomic<unsigned> made_{kNone};  // Release to acquire: the arena is complete.
};
constinit std::array<LazyArena, kMostArenas> g_small_arenas{};  // One for each processor.
constinit LazyArena g_medium_arena;

unsigned make_arena(ExtentHooks& hooks) {
  unsigned arena = 0;
  std::size_t bytes = sizeof(arena);
  ArenaConfig config{.extent_hooks = &hooks, .metadata_use_hooks = false};
  const int error =
      tiermem_je_mallctl("experimental.arenas_create_ext", &arena, &bytes, &config, sizeof(config));
  if (error != 0) {
    log_error(
        "jemalloc: cannot create an arena (error {}), so small blocks are not tiered; free memory "
        "before the start",
        error);
  }
  return error == 0 ? arena : 0;
}

unsigned LazyArena::number(ExtentHooks& hooks) {
  unsigned number = made_.load(std::memory_order_acquire);
  if (number == kNone) {
    const ArenaScope inside;
    const unsigned arena = make_arena(hooks);
    if (made_.compare_exchange_strong(number, arena, std::memory_order_acq_rel)) {
      number = arena;
    }
  }
  return number;
}

unsigned count_processors() {
  cpu_set_t allowed;
  const bool known = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  return std::clamp<unsigned>(known ? static_cast<unsigned>(CPU_COUNT(&allowed)) : 1, 1,
                              kMostArenas);
}

}  // namespace

void start_heap() {
  // Acquire: partner of the store below.
  if (g_started.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(g_starting);
  if (!g_started.load(std::memory_order_relaxed)) {
    tiermem_je_free(tiermem_je_mallocx(1, je_arena(0) | kJeNoTcache));
    g_started.store(true, std::memory_order_release);
  }
}

void heap_before_fork() {
  g_starting.lock();
  if (g_at_fork.before != nullptr) {
    g_at_fork.before();
  }
  // Behind jemalloc's, which may hold its own while it asks for an extent.
  g_small.mutex.lock();
  g_medium.mutex.lock();
}

void heap_after_fork_in_parent() {
  g_medium.mutex.unlock();
  g_small.mutex.unlock();
  if (g_at_fork.in_parent != nullptr) {
    g_at_fork.in_parent();
  }
  g_starting.unlock();
}

void heap_after_fork_in_child() {
  g_medium.mutex.unlock();
  g_small.mutex.unlock();
  if (g_at_fork.in_child != nullptr) {
    g_at_fork.in_child();
  }
  if (g_started.load(std::memory_order_relaxed)) {
    je_malloc_mutex_postfork_child(nullptr, je_arena_emap_global + kLockOfMap);
  }
  g_starting.unlock();
}

void bind_heap() {
  static constinit std::atomic<unsigned> next{0};
  static const unsigned processors = count_processors();
  unsigned arena = g_small_arenas[next.fetch_add(1, std::memory_order_relaxed) % processors].number(
      g_small_hooks);
  (void)tiermem_je_mallctl("thread.arena", nullptr, nullptr, &arena, sizeof(arena));
}

void* plain_block(std::size_t bytes, bool zero) {
  start_heap();
  return tiermem_je_mallocx(bytes == 0 ? 1 : bytes,
                            je_arena(0) | kJeNoTcache | (zero ? kJeZero : 0));
}

void* medium_block(std::size_t bytes, std::size_t alignment, bool zero) {
  return tiermem_je_mallocx(bytes, je_arena(g_medium_arena.number(g_medium_hooks)) | kJeNoTcache |
                                       je_align(alignment) | (zero ? kJeZero : 0));
}

void* resize_to_medium(void* block, std::size_t bytes) {
  return tiermem_je_rallocx(block, bytes,
                            je_arena(g_medium_arena.number(g_medium_hooks)) | kJeNoTcache);
}

}  // namespace tiermem::preload

// Functions that jemalloc calls in the place of libc's (jemalloc.symbols).
extern "C" {

__attribute__((visibility("hidden"))) int tiermem_je_atfork(void (*before)(), void (*in_parent)(),
                                                            void (*in_child)()) {
  tiermem::preload::g_at_fork = {before, in_parent, in_child};
  return 0;
}

// MALLOC_CONF and /etc/malloc.conf are for a jemalloc of the program.
__attribute__((visibility("hidden"))) const char* tiermem_je_getenv(const char*) {
  return nullptr;
}
__attribute__((visibility("hidden"))) ssize_t tiermem_je_readlink(const char*, char*, std::size_t) {
  errno = ENOENT;
  return -1;
}

}  // extern "C"

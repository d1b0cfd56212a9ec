// The malloc family as the program sees it. There are five kinds of block. Small and medium ones
// come from the heap. A large one is a region of its own, at a multiple of 2 MiB. An internal one
// is allocated while a thread works for tiermem: it comes from tiermem's arena and has its size in
// front of it. The first ones of a process are cut from one piece of that arena, and are not
// reused. free() tells them apart by address: the arena is one range, and outside it nearly only
// large blocks are at a multiple of 2 MiB.
//
// Blocks that libc itself and the loader allocate stay in plain memory. libc and the loader touch
// streams, name service tables and tables of thread-local storage in the middle of a fork, when no
// thread can promote absent pages. The child of a posix_spawn makes system calls on paths while all
// signals are blocked. So copies of strings for the program are made here, and those that libc
// makes for itself stay plain.
//
// Threads: any, from before main until after the last exit handler. Never writes to a descriptor.
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "preload/heap.hpp"
#include "preload/jemalloc.hpp"
#include "preload/libc_callers.hpp"
#include "preload/region.hpp"
#include "preload/start.hpp"
#include "preload/tiering.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLeastAlign = 16;
constexpr std::size_t kMostBytes = PTRDIFF_MAX;

// settings().medium, once known. A ready thread needs no other check for smaller blocks.
constinit std::atomic<std::size_t> g_small_limit{0};

struct InternalHeader {
  std::size_t bytes;  // As requested from the arena, or those of one of the first blocks.
  std::size_t align;  // 0: one of the first blocks.
};
static_assert(sizeof(InternalHeader) == kLeastAlign);

void* internal_block(std::size_t bytes, std::size_t align) {
  if (bytes > kMostBytes || align > kMostBytes - bytes) {
    return nullptr;
  }
  auto* const start = static_cast<std::byte*>(arena_allocate(bytes + align, align));
  if (start == nullptr) {
    return nullptr;
  }
  std::byte* const block = start + align;
  new (block - sizeof(InternalHeader)) InternalHeader{bytes + align, align};
  return block;
}

const InternalHeader& header_of(const void* block) {
  return *reinterpret_cast<const InternalHeader*>(static_cast<const std::byte*>(block) -
                                                  sizeof(InternalHeader));
}

void free_internal(void* block) {
  const InternalHeader header = header_of(block);
  if (header.align == 0) {
    return;
  }
  arena_free(static_cast<std::byte*>(block) - header.align, header.bytes, header.align);
}

// A process that ends with its first small blocks does not start jemalloc, which would take a
// sixth of its time. Each copy of libstdc++ takes 71 KiB for exceptions, and touches one page.
constexpr std::size_t kFirstBytes = std::size_t{256} << 10;

struct FirstPiece {
  FirstPiece() {
    const ArenaScope inside;
    begin =
        arena_is_enclosed() ? static_cast<std::byte*>(arena_allocate(kFirstBytes, kPage)) : nullptr;
    bytes = begin == nullptr ? 0 : std::min(kFirstBytes, settings().start);
  }
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::atomic<std::size_t> used{0};
};

// Returns one of the first blocks, which is plain. Null if there are none left for the thread.
void* first_block(std::size_t bytes, std::size_t align, bool zero) {
  if (malloc_is_ready()) {
    return nullptr;
  }
  start_process();
  static FirstPiece piece;
  align = std::max(align, kLeastAlign);
  std::size_t used = piece.used.load(std::memory_order_relaxed);
  std::size_t at = 0;
  do {
    at = round_up(used + sizeof(InternalHeader), align);
    if (align > kPage || at > piece.bytes || bytes > piece.bytes - at) {
      return nullptr;
    }
  } while (!piece.used.compare_exchange_weak(used, at + bytes, std::memory_order_relaxed));
  std::byte* const block = piece.begin + at;
  new (block - sizeof(InternalHeader)) InternalHeader{bytes, 0};
  return zero ? memset(block, 0, bytes) : block;
}

// Call it before jemalloc makes a block for the program.
void prepare_thread() {
  if (malloc_is_ready()) {
    return;
  }
  start_process();
  start_heap();
  g_small_limit = settings().medium;
  set_malloc_ready();  // Must be first: the next call may allocate.
  bind_heap();
}

// A block that grows is likely to grow again, and address space costs nothing.
void* large_block(std::size_t bytes) {
  if (!tiered(bytes)) {
    return nullptr;
  }
  return create_region(Use::block, bytes, bytes + bytes / 2, large_extent());
}

[[gnu::noinline]] void* allocate_slowly(std::size_t bytes, std::size_t align, bool zero) noexcept {
  void* block = nullptr;
  if (bytes > kMostBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  if (inside_tiermem() && !arena_is_enclosed()) {
    start_heap();
    // Address space is too small for an arena with a recognisable range. Nothing will be tiered.
    block = tiermem_je_mallocx(bytes == 0 ? 1 : bytes, je_align(align) | (zero ? kJeZero : 0));
  } else if (inside_tiermem()) {
    block = internal_block(bytes, align);
    if (block != nullptr && zero) {
      memset(block, 0, bytes);
    }
  } else if (block = first_block(bytes, align, zero); block == nullptr) {
    prepare_thread();
    if (bytes >= settings().large && align <= kHugePage) {
      block = large_block(bytes);
    }
    if (block == nullptr && bytes >= settings().medium) {
      block = medium_block(bytes, align, zero);
    } else if (block == nullptr) {
      block = tiermem_je_mallocx(bytes == 0 ? 1 : bytes, je_align(align) | (zero ? kJeZero : 0));
    }
  }
  if (block == nullptr) {
    errno = ENOMEM;
  }
  return block;
}

[[gnu::always_inline]] inline void* allocate(std::size_t bytes) {
  if (malloc_is_ready() && bytes < g_small_limit.load(std::memory_order_relaxed)) [[likely]] {
    return tiermem_je_malloc(bytes);
  }
  return allocate_slowly(bytes, kLeastAlign, false);
}

// Streams and tables are small; the loader's tables grow with the number of libraries.
bool plain_for_libc(std::size_t bytes, const void* caller) {
  constexpr std::size_t kMostForLibc = 4096, kMostForLoader = 65536;
  return !inside_tiermem() && bytes <= (is_loader(caller) ? kMostForLoader : kMostForLibc) &&
         stays_plain(caller);
}

[[gnu::noinline]] void* allocate_for_libc(std::size_t bytes, bool zero,
                                          const void* caller) noexcept {
  void* block = nullptr;
  if (plain_for_libc(bytes, caller)) {
    block = first_block(bytes, kLeastAlign, zero);
    block = block != nullptr ? block : plain_block(bytes, zero);
  }
  return block != nullptr ? block : allocate_slowly(bytes, kLeastAlign, zero);
}

bool may_be_large(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) % kHugePage == 0;
}

[[gnu::noinline]] void release_slowly(void* block) noexcept {
  const int error = errno;
  if (arena_contains(block)) {
    free_internal(block);
  } else if (block != nullptr && !free_region(static_cast<std::byte*>(block), Use::block)) {
    tiermem_je_free(block);
  }
  errno = error;
}

[[gnu::always_inline]] inline void release(void* block) {
  if (!may_be_large(block) && !arena_contains(block)) [[likely]] {
    tiermem_je_free(block);
    return;
  }
  release_slowly(block);
}

bool is_large(const void* block, Region& region) {
  return may_be_large(block) && find_region(block, region) && region.use == Use::block &&
         region.begin == block;
}

std::size_t usable(const void* block) {
  if (block == nullptr) {
    return 0;
  }
  if (arena_contains(block)) {
    const InternalHeader& header = header_of(block);
    return header.bytes - header.align;
  }
  Region region;
  if (is_large(block, region)) {
    return region.length;
  }
  return tiermem_je_malloc_usable_size(block);
}

void* move_block(void* block, std::size_t from, std::size_t to) {
  void* const moved = allocate(to);
  if (moved == nullptr) {
    return nullptr;
  }
  const std::size_t bytes = std::min(from, to);
  Region region;
  if (is_large(block, region) && is_large(moved, region)) {
    move_part({static_cast<std::byte*>(block), bytes}, static_cast<std::byte*>(moved));
  } else {
    memcpy(moved, block, bytes);
  }
  release(block);
  return moved;
}

void* resize(void* block, std::size_t bytes) {
  if (block == nullptr) {
    return allocate(bytes);
  }
  if (bytes == 0) {  // As in glibc.
    release(block);
    return nullptr;
  }
  if (bytes > kMostBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  Region region;
  const bool large = is_large(block, region);
  if (large && bytes >= settings().large && bytes <= region.capacity) {
    resize_region(region.begin, bytes);
    return block;
  }
  if (large || arena_contains(block) || inside_tiermem() || bytes >= settings().large) {
    return move_block(block, usable(block), bytes);
  }
  prepare_thread();
  void* const moved = bytes >= settings().medium ? resize_to_medium(block, bytes)
                                                 : tiermem_je_rallocx(block, bytes, 0);
  if (moved == nullptr) {
    errno = ENOMEM;
  }
  return moved;
}

// Resized in place, or in the thread's arena, the block would not stay plain.
void* resize_for_libc(void* block, std::size_t bytes, const void* caller) {
  if (bytes == 0 || !plain_for_libc(bytes, caller)) {
    return resize(block, bytes);
  }
  void* const moved = allocate_for_libc(bytes, false, caller);
  if (moved != nullptr && block != nullptr) {
    memcpy(moved, block, std::min(usable(block), bytes));
    release(block);
  }
  return moved;
}

void* aligned_block(std::size_t align, std::size_t bytes) {
  // Blocks are aligned to their size up to kLeastAlign.
  return align <= kLeastAlign ? allocate(std::max(bytes, align))
                              : allocate_slowly(bytes, align, false);
}

// Returns a copy of `n` characters and an end, for the program.
template <typename Character>
Character* copy_of(const Character* text, std::size_t n) {
  auto* const copy = static_cast<Character*>(allocate((n + 1) * sizeof(Character)));
  if (copy != nullptr) {
    memcpy(copy, text, n * sizeof(Character));
    copy[n] = Character{};
  }
  return copy;
}

// The program's C++ library has the handler of new, and counts what is thrown. This library has a
// copy of its own (cmake/preload.cmake), so new asks the program's after a failure: it calls malloc
// again, then the handler, and throws. Null if the program has none, or another than libstdc++.
template <typename New>
New new_of_program(const char* name) {
  if (inside_tiermem()) {
    return nullptr;  // The copy throws, and code of this library catches.
  }
  const ArenaScope inside;
  void* const library = ::dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<New>(::dlsym(library, name)) : nullptr;
}

// libstdc++ rounds the size up to the alignment, and the largest sizes would wrap.
bool needs_no_alignment(std::size_t bytes, std::size_t align) {
  return align <= kLeastAlign || bytes > kMostBytes;
}

void* allocate_or_throw(std::size_t bytes, std::size_t align) {
  if (void* const block = aligned_block(align, bytes); block != nullptr) [[likely]] {
    return block;
  }
  if (needs_no_alignment(bytes, align)) {
    const auto again = new_of_program<void* (*)(std::size_t)>("_Znwm");
    return again != nullptr ? again(bytes) : throw std::bad_alloc();
  }
  using New = void* (*)(std::size_t, std::align_val_t);
  const auto again = new_of_program<New>("_ZnwmSt11align_val_t");
  return again != nullptr ? again(bytes, std::align_val_t(align)) : throw std::bad_alloc();
}

void* allocate_or_null(std::size_t bytes, std::size_t align) noexcept {
  if (void* const block = aligned_block(align, bytes); block != nullptr) [[likely]] {
    return block;
  }
  if (needs_no_alignment(bytes, align)) {
    using New = void* (*)(std::size_t, const std::nothrow_t&);
    const auto again = new_of_program<New>("_ZnwmRKSt9nothrow_t");
    return again != nullptr ? again(bytes, std::nothrow) : nullptr;
  }
  using New = void* (*)(std::size_t, std::align_val_t, const std::nothrow_t&);
  const auto again = new_of_program<New>("_ZnwmSt11align_val_tRKSt9nothrow_t");
  return again != nullptr ? again(bytes, std::align_val_t(align), std::nothrow) : nullptr;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED void* malloc(size_t bytes) noexcept {
  const void* const caller = __builtin_return_address(0);
  if (is_libc(caller)) [[unlikely]] {
    return allocate_for_libc(bytes, false, caller);
  }
  return allocate(bytes);
}

TIERMEM_INTERPOSED void free(void* block) noexcept {
  release(block);
}

TIERMEM_INTERPOSED void* calloc(size_t count, size_t each) noexcept {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  const void* const caller = __builtin_return_address(0);
  if (is_libc(caller)) [[unlikely]] {
    return allocate_for_libc(bytes, true, caller);
  }
  if (tiermem::malloc_is_ready() && bytes < g_small_limit.load(std::memory_order_relaxed))
      [[likely]] {
    return tiermem_je_calloc(1, bytes);
  }
  return allocate_slowly(bytes, kLeastAlign, true);
}

TIERMEM_INTERPOSED void* realloc(void* block, size_t bytes) noexcept {
  const void* const caller = __builtin_return_address(0);
  if (is_libc(caller)) [[unlikely]] {
    return resize_for_libc(block, bytes, caller);
  }
  return resize(block, bytes);
}

TIERMEM_INTERPOSED void* reallocarray(void* block, size_t count, size_t each) noexcept {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return resize(block, bytes);
}

TIERMEM_INTERPOSED int posix_memalign(void** out, size_t align, size_t bytes) noexcept {
  if (!std::has_single_bit(align) || align % sizeof(void*) != 0) {
    return EINVAL;
  }
  const int error = errno;
  void* const block = aligned_block(align, bytes);
  errno = error;
  if (block == nullptr) {
    return ENOMEM;
  }
  *out = block;
  return 0;
}

TIERMEM_INTERPOSED void* memalign(size_t align, size_t bytes) noexcept {
  if (align > (SIZE_MAX >> 1) + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned_block(std::bit_ceil(align), bytes);  // As in glibc.
}

TIERMEM_INTERPOSED void* aligned_alloc(size_t align, size_t bytes) noexcept {
  return memalign(align, bytes);
}

TIERMEM_INTERPOSED void* valloc(size_t bytes) noexcept {
  return aligned_block(kPage, bytes);
}

TIERMEM_INTERPOSED void* pvalloc(size_t bytes) noexcept {
  if (bytes > kMostBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  return aligned_block(kPage, tiermem::round_up(bytes, kPage));
}

TIERMEM_INTERPOSED char* strdup(const char* text) noexcept {
  return copy_of(text, strlen(text));
}

TIERMEM_INTERPOSED char* strndup(const char* text, size_t most) noexcept {
  return copy_of(text, strnlen(text, most));
}

TIERMEM_INTERPOSED wchar_t* wcsdup(const wchar_t* text) noexcept {
  return copy_of(text, wcslen(text));
}

// Other names of the same, which old programs were compiled to call.
TIERMEM_INTERPOSED char* __strdup(const char* text) noexcept {
  return copy_of(text, strlen(text));
}

TIERMEM_INTERPOSED char* __strndup(const char* text, size_t most) noexcept {
  return copy_of(text, strnlen(text, most));
}

// Names of glibc's own functions. Programs that mix them with the others get blocks of one heap.
TIERMEM_INTERPOSED void* __libc_malloc(size_t bytes) noexcept {
  return malloc(bytes);
}
TIERMEM_INTERPOSED void __libc_free(void* block) noexcept {
  free(block);
}
TIERMEM_INTERPOSED void* __libc_calloc(size_t count, size_t each) noexcept {
  return calloc(count, each);
}
TIERMEM_INTERPOSED void* __libc_realloc(void* block, size_t bytes) noexcept {
  return realloc(block, bytes);
}
TIERMEM_INTERPOSED void* __libc_memalign(size_t align, size_t bytes) noexcept {
  return memalign(align, bytes);
}
TIERMEM_INTERPOSED void* __libc_valloc(size_t bytes) noexcept {
  return valloc(bytes);
}
TIERMEM_INTERPOSED void* __libc_pvalloc(size_t bytes) noexcept {
  return pvalloc(bytes);
}

TIERMEM_INTERPOSED size_t malloc_usable_size(void* block) noexcept {
  return usable(block);
}

}  // extern "C"

TIERMEM_INTERPOSED void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, kLeastAlign);
}
TIERMEM_INTERPOSED void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, kLeastAlign);
}
TIERMEM_INTERPOSED void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, kLeastAlign);
}
TIERMEM_INTERPOSED void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, kLeastAlign);
}
TIERMEM_INTERPOSED void* operator new(std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align));
}
TIERMEM_INTERPOSED void* operator new[](std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align));
}
TIERMEM_INTERPOSED void* operator new(std::size_t bytes, std::align_val_t align,
                                      const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(align));
}
TIERMEM_INTERPOSED void* operator new[](std::size_t bytes, std::align_val_t align,
                                        const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(align));
}

TIERMEM_INTERPOSED void operator delete(void* block) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete(void* block, const std::nothrow_t&) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block, const std::nothrow_t&) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete(void* block, std::size_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block, std::size_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete(void* block, std::align_val_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block, std::align_val_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete(void* block, std::align_val_t,
                                        const std::nothrow_t&) noexcept {
  release(block);
}
TIERMEM_INTERPOSED void operator delete[](void* block, std::align_val_t,
                                          const std::nothrow_t&) noexcept {
  release(block);
}

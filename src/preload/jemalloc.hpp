// The jemalloc inside the preload library: its static archive with every public name changed
// (jemalloc.symbols), so that it does not clash with another jemalloc in the program. The extent
// hooks are declared here as jemalloc 5.3 has them, because its header would declare the unchanged
// names.
#pragma once

#include <cstddef>

extern "C" {

void* tiermem_je_malloc(std::size_t bytes) noexcept;
void* tiermem_je_calloc(std::size_t count, std::size_t bytes) noexcept;
void* tiermem_je_realloc(void* block, std::size_t bytes) noexcept;
void tiermem_je_free(void* block) noexcept;
void* tiermem_je_mallocx(std::size_t bytes, int flags) noexcept;
void* tiermem_je_rallocx(void* block, std::size_t bytes, int flags) noexcept;
void tiermem_je_dallocx(void* block, int flags) noexcept;
std::size_t tiermem_je_malloc_usable_size(const void* block) noexcept;
int tiermem_je_mallctl(const char* name, void* old_value, std::size_t* old_bytes, void* new_value,
                       std::size_t new_bytes);

struct extent_hooks_s {
  void* (*alloc)(extent_hooks_s*, void* at, std::size_t bytes, std::size_t alignment, bool* zero,
                 bool* commit, unsigned arena);
  bool (*dalloc)(extent_hooks_s*, void*, std::size_t bytes, bool committed, unsigned arena);
  void (*destroy)(extent_hooks_s*, void*, std::size_t bytes, bool committed, unsigned arena);
  bool (*commit)(extent_hooks_s*, void*, std::size_t bytes, std::size_t offset, std::size_t length,
                 unsigned arena);
  bool (*decommit)(extent_hooks_s*, void*, std::size_t bytes, std::size_t offset,
                   std::size_t length, unsigned arena);
  bool (*purge_lazy)(extent_hooks_s*, void*, std::size_t bytes, std::size_t offset,
                     std::size_t length, unsigned arena);
  bool (*purge_forced)(extent_hooks_s*, void*, std::size_t bytes, std::size_t offset,
                       std::size_t length, unsigned arena);
  bool (*split)(extent_hooks_s*, void*, std::size_t bytes, std::size_t first, std::size_t second,
                bool committed, unsigned arena);
  bool (*merge)(extent_hooks_s*, void* first, std::size_t first_bytes, void* second,
                std::size_t second_bytes, bool committed, unsigned arena);
};

}  // extern "C"

namespace tiermem::preload {

using ExtentHooks = extent_hooks_s;

/// The argument of mallctl "experimental.arenas_create_ext". Without `metadata_use_hooks` the
/// arena's metadata stays in plain memory.
struct ArenaConfig {
  ExtentHooks* extent_hooks;
  bool metadata_use_hooks;
};

// Flags of mallocx, as its header defines them.
constexpr int je_align(std::size_t alignment) {
  return __builtin_ctzl(alignment);
}
inline constexpr int kJeZero = 0x40;
inline constexpr int kJeNoTcache = 1 << 8;
constexpr int je_arena(unsigned arena) {
  return static_cast<int>((arena + 1) << 20);
}

}  // namespace tiermem::preload

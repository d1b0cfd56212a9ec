// Uses dlopen to call a library's own malloc, never the linked one.
#include "bench/allocators.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

namespace tiermem::bench {
namespace {

struct Library {
  const char* name;
  std::array<const char*, 2> files;  ///< The first that exists is used. Debian 12 and 13 differ.
  const char* malloc;
  const char* calloc;
  const char* free;
};
constexpr std::array kLibraries = {
    Library{
        "mimalloc", {"libmimalloc.so.2", "libmimalloc.so.3"}, "mi_malloc", "mi_calloc", "mi_free"},
    Library{"jemalloc", {"libjemalloc.so.2"}, "malloc", "calloc", "free"}};

/// memkind's functions take a kind; this one is ordinary memory.
struct Memkind {
  void* kind = nullptr;
  void* (*malloc)(void* kind, std::size_t bytes) = nullptr;
  void* (*calloc)(void* kind, std::size_t count, std::size_t bytes) = nullptr;
  void (*free)(void* kind, void* block) = nullptr;
};
Memkind g_memkind;  // Written before the functions below are passed on.

void* memkind_malloc(std::size_t bytes) {
  return g_memkind.malloc(g_memkind.kind, bytes);
}
void* memkind_calloc(std::size_t count, std::size_t bytes) {
  return g_memkind.calloc(g_memkind.kind, count, bytes);
}
void memkind_free(void* block) {
  g_memkind.free(g_memkind.kind, block);
}

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));  // The purpose of dlsym.
}

/// Opens the first file that can be opened. Null if there is none; `missing` then has the reason.
void* open_library(const char* name, const std::array<const char*, 2>& files,
                   std::string& missing) {
  void* handle = nullptr;
  for (const char* file : files) {
    if (handle == nullptr && file != nullptr) {
      handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    }
  }
  if (handle == nullptr) {
    const char* const error = dlerror();
    missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", name,
                           error == nullptr ? "cannot be opened" : error);
  }
  return handle;
}

bool find_memkind(void* handle) {
  auto* const kind = symbol<void**>(handle, "MEMKIND_DEFAULT");
  g_memkind = {kind != nullptr ? *kind : nullptr,
               symbol<decltype(Memkind::malloc)>(handle, "memkind_malloc"),
               symbol<decltype(Memkind::calloc)>(handle, "memkind_calloc"),
               symbol<decltype(Memkind::free)>(handle, "memkind_free")};
  return g_memkind.kind != nullptr && g_memkind.malloc != nullptr && g_memkind.calloc != nullptr &&
         g_memkind.free != nullptr;
}

}  // namespace

std::vector<Allocator> allocators(Session& session, const char* benchmark) {
  std::string missing;
  std::vector<Allocator> found = {{"glibc", std::malloc, std::calloc, std::free}};
  // The best settings for these benchmarks, unless the user sets others: huge pages, and no memory
  // returned to the kernel in between.
  constexpr const char* kJemalloc =
      "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0";
  setenv("MALLOC_CONF", kJemalloc, 0);
  setenv("JEMK_MALLOC_CONF", kJemalloc, 0);  // For the jemalloc inside memkind.
  setenv("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1", 0);
  setenv("MIMALLOC_LARGE_OS_PAGES", "1", 0);
  for (const Library& library : kLibraries) {
    void* const handle = open_library(library.name, library.files, missing);
    if (handle == nullptr) {
      continue;
    }
    const Allocator allocator{library.name, symbol<void* (*)(std::size_t)>(handle, library.malloc),
                              symbol<void* (*)(std::size_t, std::size_t)>(handle, library.calloc),
                              symbol<void (*)(void*)>(handle, library.free)};
    if (allocator.malloc != nullptr && allocator.calloc != nullptr && allocator.free != nullptr) {
      found.push_back(allocator);
    }
  }
  void* const memkind = open_library("memkind", {"libmemkind.so.0"}, missing);
  if (memkind != nullptr && find_memkind(memkind)) {
    found.push_back({"memkind", memkind_malloc, memkind_calloc, memkind_free});
  }
  if (!missing.empty()) {
    session.note(fmt::format("{}, not compared: {}", benchmark, missing));
  }
  return found;
}

}  // namespace tiermem::bench

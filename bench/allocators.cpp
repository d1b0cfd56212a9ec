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

/// memkind's functions take a kind. An Allocator's functions have no state, so each kind has its
/// own.
struct Memkind {
  void* kind = nullptr;
  void* (*malloc)(void* kind, std::size_t bytes) = nullptr;
  void* (*calloc)(void* kind, std::size_t count, std::size_t bytes) = nullptr;
  void (*free)(void* kind, void* block) = nullptr;
};
enum MemkindUse : unsigned { kOrdinary, kOfNodes, kInFile, kMemkindUses };
std::array<Memkind, kMemkindUses> g_memkinds;  // Written before the functions below are passed on.

template <MemkindUse use>
Allocator of_memkind(const char* name) {
  return {name,
          [](std::size_t bytes) { return g_memkinds[use].malloc(g_memkinds[use].kind, bytes); },
          [](std::size_t count, std::size_t bytes) {
            return g_memkinds[use].calloc(g_memkinds[use].kind, count, bytes);
          },
          [](void* block) { g_memkinds[use].free(g_memkinds[use].kind, block); }};
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

/// Finds the functions for a kind.
bool find_memkind(void* handle, void* kind, MemkindUse use) {
  Memkind& its = g_memkinds[use];
  its = {kind, symbol<decltype(Memkind::malloc)>(handle, "memkind_malloc"),
         symbol<decltype(Memkind::calloc)>(handle, "memkind_calloc"),
         symbol<decltype(Memkind::free)>(handle, "memkind_free")};
  return kind != nullptr && its.malloc != nullptr && its.calloc != nullptr && its.free != nullptr;
}

/// Returns the kind that the library defines by this name, or null.
void* kind_of(void* handle, const char* name) {
  auto* const kind = symbol<void**>(handle, name);
  return kind != nullptr ? *kind : nullptr;
}

void* open_memkind(std::string& missing) {
  return open_library("memkind", {"libmemkind.so.0"}, missing);
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
  void* const memkind = open_memkind(missing);
  if (memkind != nullptr && find_memkind(memkind, kind_of(memkind, "MEMKIND_DEFAULT"), kOrdinary)) {
    found.push_back(of_memkind<kOrdinary>("memkind"));
  }
  if (!missing.empty()) {
    session.note(fmt::format("{}, not compared: {}", benchmark, missing));
  }
  return found;
}

Allocator memkind_of_nodes(Session& session, const char* benchmark) {
  std::string missing;
  void* const memkind = open_memkind(missing);
  if (memkind != nullptr && find_memkind(memkind, kind_of(memkind, "MEMKIND_REGULAR"), kOfNodes)) {
    return of_memkind<kOfNodes>("memkind, MEMKIND_REGULAR");
  }
  session.note(fmt::format("{}, not compared: {}", benchmark,
                           missing.empty() ? "memkind has no kind for nodes" : missing));
  return {};
}

Allocator memkind_of_directory(Session& session, const char* benchmark,
                               const std::string& directory, std::size_t bytes) {
  std::string missing;
  void* const memkind = open_memkind(missing);
  using Create = int (*)(const char*, std::size_t, void**);
  const auto create = memkind != nullptr ? symbol<Create>(memkind, "memkind_create_pmem") : nullptr;
  void* kind = nullptr;
  const int error = create != nullptr ? create(directory.c_str(), bytes, &kind) : 0;
  if (error == 0 && memkind != nullptr && find_memkind(memkind, kind, kInFile)) {
    return of_memkind<kInFile>("memkind, a file");
  }
  session.note(
      fmt::format("{}, not compared: {}", benchmark,
                  missing.empty() ? fmt::format("memkind_create_pmem: error {}", error) : missing));
  return {};
}

}  // namespace tiermem::bench

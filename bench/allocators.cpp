// dlopen: a library's own malloc, never the one that was linked.
#include "bench/allocators.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

namespace tiermem::bench {
namespace {

struct Library {
  const char* name;
  const char* file;
  const char* malloc;
  const char* calloc;
  const char* free;
};
constexpr std::array kLibraries = {
    Library{"mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_calloc", "mi_free"},
    Library{"jemalloc", "libjemalloc.so.2", "malloc", "calloc", "free"}};

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));  // NOLINT: what dlsym is for.
}

}  // namespace

std::vector<Allocator> allocators(Session& session, const char* benchmark) {
  std::string missing;
  std::vector<Allocator> found = {{"glibc", std::malloc, std::calloc, std::free}};
  // Their best for what is measured here, unless the user says otherwise: huge pages, and nothing
  // given back to the kernel in between.
  setenv("MALLOC_CONF", "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0", 0);
  setenv("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1", 0);
  setenv("MIMALLOC_LARGE_OS_PAGES", "1", 0);
  for (const Library& library : kLibraries) {
    void* handle = dlopen(library.file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    const char* error = handle == nullptr ? dlerror() : nullptr;
    if (handle == nullptr) {
      missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", library.name,
                             error == nullptr ? "cannot be opened" : error);
      continue;
    }
    const Allocator allocator{library.name, symbol<void* (*)(std::size_t)>(handle, library.malloc),
                              symbol<void* (*)(std::size_t, std::size_t)>(handle, library.calloc),
                              symbol<void (*)(void*)>(handle, library.free)};
    if (allocator.malloc != nullptr && allocator.calloc != nullptr && allocator.free != nullptr) {
      found.push_back(allocator);
    }
  }
  if (!missing.empty()) {
    session.note(fmt::format("{}, not compared: {}", benchmark, missing));
  }
  return found;
}

}  // namespace tiermem::bench

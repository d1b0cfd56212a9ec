// The allocators of this machine, for comparison: this program's own, and those that can be loaded
// at run time. Each is called through its exported functions. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/harness.hpp"

namespace tiermem::bench {

struct Allocator {
  std::string name;
  void* (*malloc)(std::size_t);
  void* (*calloc)(std::size_t, std::size_t);
  void (*free)(void*);
};

/// Returns glibc's first, and mimalloc, jemalloc and memkind (ordinary memory) if they can be
/// loaded. They stay loaded. Each one that could not be loaded is noted for `benchmark`.
std::vector<Allocator> allocators(Session& session, const char* benchmark);

}  // namespace tiermem::bench

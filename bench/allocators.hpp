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

/// Returns memkind's kind for the memory of the nodes with processors, or an empty name if it
/// cannot be loaded; that is noted for `benchmark`.
Allocator memkind_of_nodes(Session& session, const char* benchmark);
/// Returns memkind's kind in a file of `bytes` in a directory, likewise.
Allocator memkind_of_directory(Session& session, const char* benchmark,
                               const std::string& directory, std::size_t bytes);

}  // namespace tiermem::bench

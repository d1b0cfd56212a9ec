// The allocators of this machine, to compare with: the one this program has, and those that can be
// opened at run time. Each is used through the pointers it exports itself. Any thread.
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

/// glibc's first; then mimalloc, jemalloc and memkind (its kind of ordinary memory) where they can
/// be opened. They stay open. What could not be opened is noted for `benchmark`.
std::vector<Allocator> allocators(Session& session, const char* benchmark);

}  // namespace tiermem::bench

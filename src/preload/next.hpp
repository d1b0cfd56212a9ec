// libc's own functions, which this library interposes. Any thread, but not in a child of vfork,
// which must not use the loader.
#pragma once

#include <dlfcn.h>

#include "base/arena.hpp"

namespace tiermem::preload {

/// Returns null if no other library has the function.
template <typename Function>
Function next(const char* name) {
  const ArenaScope inside;
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

template <typename Function>
void find(Function& function, const char* name) {
  function = next<Function>(name);
}

}  // namespace tiermem::preload

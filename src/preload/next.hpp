// libc's own functions, behind those that this library puts before them. Any thread; not in a child
// of vfork, which may not ask the loader.
#pragma once

#include <dlfcn.h>

#include "base/arena.hpp"

namespace tiermem::preload {

/// Null: there is none behind.
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

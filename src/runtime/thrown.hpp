// Converts an exception to a Status at the edge of the library: no exception passes a public call
// or the top of a thread. Any thread.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>

#include "base/arena.hpp"
#include "base/error.hpp"

namespace tiermem {

/// The failure of `call`: no_capacity if allocation of records failed, otherwise internal.
inline Status why_thrown(const char* call, const std::exception& thrown) noexcept {
  const ArenaScope inside;
  const bool memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr ||
                      dynamic_cast<const std::length_error*>(&thrown) != nullptr;
  if (!memory) {
    return fail(Code::internal, "{}: {}", call, thrown.what());
  }
  ErrorInfo info =
      error_info(Code::no_capacity,
                 "{}: allocation of the records of the call failed (ulimit -v, "
                 "vm.overcommit_memory, vm.max_map_count); free memory or raise the limit",
                 call);
  info.native = ENOMEM;
  return Status(info);
}

}  // namespace tiermem

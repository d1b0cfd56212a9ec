// Fork handlers run in reverse order before the fork and in order after it, so ours are registered
// before jemalloc's: its locks are taken while tiered memory can still be touched, and freed when
// it can be again.
#include "preload/start.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include <mutex>

#include "base/arena.hpp"
#include "base/log.hpp"
#include "preload/region.hpp"
#include "preload/tiering.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 38;

// Whose malloc the program calls, if not ours: something before us in the link order.
void check_order() {
  Dl_info found{}, self{};
  void* const theirs = ::dlsym(RTLD_DEFAULT, "malloc");
  if (::dladdr(theirs, &found) != 0 &&
      ::dladdr(reinterpret_cast<void*>(&start_process), &self) != 0 &&
      found.dli_fbase != self.dli_fbase) {
    log_error("malloc is served by {}: put tiermem before it (first in LD_PRELOAD)",
              found.dli_fname);
    stop_tiering("another malloc stands before tiermem's");
  }
}

__attribute__((constructor)) void on_load() {
  const ArenaScope inside;
  start_process();
  check_order();
}

}  // namespace

void start_process() {
  static const bool started = [] {
    const ArenaScope inside;
    (void)arena_enclose(kArenaBytes);
    ::pthread_atfork(lock_regions, unlock_regions, unlock_regions);
    return true;
  }();
  (void)started;
}

}  // namespace tiermem::preload

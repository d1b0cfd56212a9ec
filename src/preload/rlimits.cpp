// Limits that a program sets for itself while it runs.
//
// RLIMIT_AS: the arena's reservation counts and could use up the limit, so it shrinks.
// RLIMIT_FSIZE: the block tier's files belong to this process and count. No more memory is tiered,
// and tiered memory keeps to no budget, because it could not leave.
//
// Threads: any. Limits that another process sets go unnoticed.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.hpp"
#include "preload/kernel.hpp"
#include "preload/share.hpp"
#include "preload/start.hpp"
#include "preload/tiering.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

// Called before the kernel's call. If the kernel refuses, the cost is only unused room, or that no
// more memory is tiered.
void limit_falls(int resource, rlim_t limit) {
  if (inside_tiermem()) {
    return;
  }
  const ArenaScope inside;
  if (resource == RLIMIT_AS && limit != RLIM_INFINITY) {
    arena_shrink(arena_bytes_under(limit));
  } else if (resource == RLIMIT_FSIZE && limit < largest_file()) {
    stop_tiering("the program limits the size of its files (RLIMIT_FSIZE)");
    keep_to_no_budget();
  }
}

int set_limit(pid_t process, int resource, const rlimit* limit, rlimit* old) {
  if (limit != nullptr && (process == 0 || process == ::getpid())) {
    limit_falls(resource, limit->rlim_cur);
  }
  return static_cast<int>(direct(SYS_prlimit64, process, resource, limit, old));
}

static_assert(sizeof(rlimit) == sizeof(rlimit64));

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED int setrlimit(__rlimit_resource_t resource, const rlimit* limit) noexcept {
  return set_limit(0, static_cast<int>(resource), limit, nullptr);
}

TIERMEM_INTERPOSED int setrlimit64(__rlimit_resource_t resource, const rlimit64* limit) noexcept {
  return set_limit(0, static_cast<int>(resource), reinterpret_cast<const rlimit*>(limit), nullptr);
}

TIERMEM_INTERPOSED int prlimit(pid_t process, __rlimit_resource resource, const rlimit* limit,
                               rlimit* old) noexcept {
  return set_limit(process, static_cast<int>(resource), limit, old);
}

TIERMEM_INTERPOSED int prlimit64(pid_t process, __rlimit_resource resource, const rlimit64* limit,
                                 rlimit64* old) noexcept {
  return set_limit(process, static_cast<int>(resource), reinterpret_cast<const rlimit*>(limit),
                   reinterpret_cast<rlimit*>(old));
}

}  // extern "C"

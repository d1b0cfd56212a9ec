// Rights of the process that shrink while it runs. A filter of system calls (seccomp) that the
// program sets for itself knows nothing of the calls that tiering makes, and may end the process
// for the first of them. So no more memory is tiered from then on. What is tiered already is served
// by tiermem's own threads, which the filter of one thread does not reach.
//
// Threads: any.
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.hpp"
#include "preload/tiering.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

// The first three arguments of prctl or seccomp. Called for syscall(SYS_seccomp, ...) and
// syscall(SYS_prctl, ...), too. A filter that is null sets none: programs ask the kernel so what it
// knows (QEMU, libseccomp).
__attribute__((visibility("hidden"))) void tiermem_rights_shrink(long number, unsigned long first,
                                                                 unsigned long second,
                                                                 unsigned long third) {
  const bool strict =
      number == SYS_prctl ? second == SECCOMP_MODE_STRICT : first == SECCOMP_SET_MODE_STRICT;
  const bool sets =
      number == SYS_prctl ? first == PR_SET_SECCOMP : strict || first == SECCOMP_SET_MODE_FILTER;
  if (sets && (strict || third != 0) && !tiermem::inside_tiermem()) {
    stop_tiering("the program filters its own system calls (seccomp)");
  }
}

TIERMEM_INTERPOSED int prctl(int option, ...) noexcept {
  va_list rest;
  va_start(rest, option);
  const unsigned long a = va_arg(rest, unsigned long);
  const unsigned long b = va_arg(rest, unsigned long);
  const unsigned long c = va_arg(rest, unsigned long);
  const unsigned long d = va_arg(rest, unsigned long);
  va_end(rest);
  tiermem_rights_shrink(SYS_prctl, static_cast<unsigned long>(option), a, b);
  return static_cast<int>(::syscall(SYS_prctl, option, a, b, c, d));
}

}  // extern "C"

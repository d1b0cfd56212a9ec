// Rights that the process gives up while it runs. A seccomp filter that the program installs does
// not know the system calls that tiering makes, and may end the process at the first of them. From
// then on no more memory is tiered. tiermem's own threads still serve the memory that is tiered,
// because a filter of one thread does not apply to them.
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

// `first` to `third` are the first arguments of prctl or seccomp. syscall(SYS_seccomp, ...) and
// syscall(SYS_prctl, ...) come here, too. A null filter installs nothing: QEMU and libseccomp use
// it to ask the kernel for its features.
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

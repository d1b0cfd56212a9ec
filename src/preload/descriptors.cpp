// Calls that close descriptors. tiermem's own descriptors stay open, whatever range the program
// closes. The program gets the answer that they are not open. Any thread.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/arena.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

constexpr unsigned kCloseOnExec = 1U << 2;  // CLOSE_RANGE_CLOEXEC: closes nothing.
constexpr unsigned kMost = 1U << 20;        // All kept descriptors are below this.

int plain_close_range(unsigned first, unsigned last, unsigned flags) {
  return static_cast<int>(direct(SYS_close_range, first, last, flags));
}

int close_between(unsigned first, unsigned last, unsigned flags) {
  if (first > last || (flags & kCloseOnExec) != 0) {
    return plain_close_range(first, last, flags);
  }
  unsigned from = first;
  for (unsigned fd = first; fd <= std::min(last, kMost); ++fd) {
    if (!is_kept(static_cast<int>(fd))) {
      continue;
    }
    if (fd > from && plain_close_range(from, fd - 1, flags) != 0) {
      return -1;
    }
    from = fd + 1;
  }
  return from <= last ? plain_close_range(from, last, flags) : 0;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED int close(int fd) {
  if (tiermem::is_kept(fd) && !tiermem::inside_tiermem()) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(direct(SYS_close, fd));
}

// tiermem's descriptors have numbers above the program's limit, if the limit leaves room there. If
// it does not, dup2 answers as if they had.
TIERMEM_INTERPOSED int dup2(int from, int to) noexcept {
  if (tiermem::is_kept(to) && !tiermem::inside_tiermem()) {
    errno = EBADF;
    return -1;
  }
#if defined(SYS_dup2)
  return static_cast<int>(direct(SYS_dup2, from, to));
#else
  if (from == to) {
    return ::fcntl(from, F_GETFD) < 0 ? -1 : to;
  }
  return static_cast<int>(direct(SYS_dup3, from, to, 0));
#endif
}

TIERMEM_INTERPOSED int dup3(int from, int to, int flags) noexcept {
  if (tiermem::is_kept(to) && !tiermem::inside_tiermem()) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(direct(SYS_dup3, from, to, flags));
}

TIERMEM_INTERPOSED int close_range(unsigned first, unsigned last, int flags) noexcept {
  return close_between(first, last, static_cast<unsigned>(flags));
}

TIERMEM_INTERPOSED void closefrom(int first) noexcept {
  const int error = errno;
  const unsigned from = first < 0 ? 0 : static_cast<unsigned>(first);
  if (close_between(from, ~0U, 0) != 0) {  // Before Linux 5.9.
    for (int fd = static_cast<int>(from); fd < static_cast<int>(::sysconf(_SC_OPEN_MAX)); ++fd) {
      tiermem::best_effort(close(fd), "the descriptor is gone in any case");
    }
  }
  errno = error;
}

}  // extern "C"

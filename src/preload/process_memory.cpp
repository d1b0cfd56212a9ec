// process_vm_readv and process_vm_writev when system calls are wrapped. They copy between this
// process's tiered memory and its own memory or another's. They cannot read another process's
// absent pages: the kernel returns EFAULT. Any thread.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "preload/next.hpp"
#include "preload/region.hpp"
#include "preload/scratch.hpp"
#include "preload/transfers.hpp"
#include "preload/wrap.hpp"

#if defined(__x86_64__)

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

using Copy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

/// The current position in a list of ranges.
struct Place {
  const iovec* part;
  unsigned long parts;
  std::size_t inside = 0;

  bool more() {
    while (parts > 0 && inside == part->iov_len) {
      ++part;
      --parts;
      inside = 0;
    }
    return parts > 0;
  }
  std::byte* at() const { return static_cast<std::byte*>(part->iov_base) + inside; }
  std::size_t left() const { return part->iov_len - inside; }
};

bool may_be_absent(const std::byte* at, std::size_t bytes) {
  return in_wrapped_range(at) && stretch_at(at, bytes).may_be_absent;
}

// Copies one piece between the remote range and plain memory. Returns the result, or minus the
// error.
long copy_piece(long call, pid_t process, std::byte* plain, std::byte* remote, std::size_t bytes) {
  const bool reads = call == SYS_process_vm_readv;
  if (process == ::getpid() && may_be_absent(remote, bytes)) {
    const std::size_t there = accessible_bytes(remote, bytes, reads ? PROT_READ : PROT_WRITE);
    memcpy(reads ? plain : remote, reads ? remote : plain, there);
    return there != 0 ? static_cast<long>(there) : -EFAULT;
  }
  const iovec here{plain, bytes}, there{remote, bytes};
  const auto number = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
  return pass(
      {call, {static_cast<std::uint64_t>(process), number(&here), 1, number(&there), 1, 0}});
}

ssize_t copy(long call, pid_t process, Place here, Place there) {
  const bool reads = call == SYS_process_vm_readv;
  Scratch scratch;
  std::byte* const plain = scratch.take(kPiece);
  if (plain == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  ssize_t done = 0;
  while (here.more() && there.more()) {
    const std::size_t bytes = accessible_bytes(
        here.at(), std::min({here.left(), there.left(), kPiece}), reads ? PROT_WRITE : PROT_READ);
    if (bytes == 0) {
      errno = EFAULT;
      return done != 0 ? done : -1;
    }
    if (!reads) {
      memcpy(plain, here.at(), bytes);
    }
    const long result = copy_piece(call, process, plain, there.at(), bytes);
    if (result < 0) {
      errno = static_cast<int>(-result);
      return done != 0 ? done : -1;
    }
    if (reads) {
      memcpy(here.at(), plain, static_cast<std::size_t>(result));
    }
    done += result;
    if (static_cast<std::size_t>(result) < bytes) {
      break;
    }
    here.inside += bytes;
    there.inside += bytes;
  }
  return done;
}

bool wraps(const iovec* here, unsigned long count, const iovec* there, unsigned long others) {
  return wrapping() && count <= IOV_MAX && others <= IOV_MAX &&  // The kernel refuses more.
         (any_wrapped(here, count) || any_wrapped(there, others));
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long count,
                                            const iovec* there, unsigned long others,
                                            unsigned long flags) noexcept {
  static const auto real = next<Copy>("process_vm_readv");
  return flags == 0 && wraps(here, count, there, others)
             ? copy(SYS_process_vm_readv, process, {here, count}, {there, others})
             : real(process, here, count, there, others, flags);
}

TIERMEM_INTERPOSED ssize_t process_vm_writev(pid_t process, const iovec* here, unsigned long count,
                                             const iovec* there, unsigned long others,
                                             unsigned long flags) noexcept {
  static const auto real = next<Copy>("process_vm_writev");
  return flags == 0 && wraps(here, count, there, others)
             ? copy(SYS_process_vm_writev, process, {here, count}, {there, others})
             : real(process, here, count, there, others, flags);
}

}  // extern "C"

#endif

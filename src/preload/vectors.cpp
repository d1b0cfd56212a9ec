// Calls that give the kernel pointers behind pointers. The filter cannot see these, so they are
// wrapped in libc's functions. Calls that cannot be wrapped, because the kernel uses the memory
// later, fail as on a kernel without them, and programs do without.
//
// Threads: any. Without wrapping every call goes to libc unchanged.
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "base/results.hpp"
#include "preload/next.hpp"
#include "preload/transfers.hpp"
#include "preload/wrap.hpp"

#if defined(__x86_64__)

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

/// Converts a result to libc's convention: -1 and errno.
long answer(long result) {
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

/// Like libc's functions, these calls are cancellation points. They hold nothing.
long cancellable(const SystemCall& call) {
  int before = 0;
  must(::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before));
  const long result = wrapped_behind(call);
  must(::pthread_setcanceltype(before, nullptr));
  return answer(result);
}

bool wraps(const iovec* parts, int count) {
  return wrapping() && count > 0 &&
         (in_wrapped_range(parts) || any_wrapped(parts, static_cast<std::size_t>(count)));
}

ssize_t vector_call(long call, int fd, const iovec* parts, int count, off_t offset, int flags) {
  const auto wide = static_cast<std::uint64_t>(offset);
  return cancellable(
      {call,
       {static_cast<std::uint64_t>(fd), number(parts), static_cast<std::uint64_t>(count), wide, 0,
        static_cast<std::uint64_t>(flags)}});
}

ssize_t message_call(long call, int fd, const msghdr* message, int flags) {
  return cancellable({call,
                      {static_cast<std::uint64_t>(fd), number(message),
                       static_cast<std::uint64_t>(flags), 0, 0, 0}});
}

// The list may be shorter than `count`: the kernel may stop early. It sends at most IOV_MAX.
bool any_wrapped_message(const mmsghdr* messages, unsigned count) {
  return wrapping() && messages != nullptr &&
         std::any_of(messages, messages + std::min<unsigned>(count, IOV_MAX),
                     [](const mmsghdr& each) { return any_wrapped(&each.msg_hdr); });
}

constexpr std::int64_t kSecond = 1'000'000'000;

/// The end of a timeout that begins now; the largest number if it would be above that.
std::int64_t end_of(const timespec& timeout) {
  const auto seconds = checked_mul<std::int64_t>(timeout.tv_sec, kSecond);
  const auto whole = seconds ? checked_add<std::int64_t>(*seconds, timeout.tv_nsec) : seconds;
  return (whole ? checked_add(*whole, now_ns()) : whole).value_or(INT64_MAX);
}

using Vector = ssize_t (*)(int, const iovec*, int);
using VectorAt = ssize_t (*)(int, const iovec*, int, off_t);
using VectorFlags = ssize_t (*)(int, const iovec*, int, off_t, int);

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED ssize_t readv(int fd, const iovec* parts, int count) {
  static const auto real = next<Vector>("readv");
  return wraps(parts, count) ? vector_call(SYS_readv, fd, parts, count, 0, 0)
                             : real(fd, parts, count);
}

TIERMEM_INTERPOSED ssize_t writev(int fd, const iovec* parts, int count) {
  static const auto real = next<Vector>("writev");
  return wraps(parts, count) ? vector_call(SYS_writev, fd, parts, count, 0, 0)
                             : real(fd, parts, count);
}

TIERMEM_INTERPOSED ssize_t preadv(int fd, const iovec* parts, int count, off_t offset) {
  static const auto real = next<VectorAt>("preadv");
  return wraps(parts, count) ? vector_call(SYS_preadv, fd, parts, count, offset, 0)
                             : real(fd, parts, count, offset);
}

TIERMEM_INTERPOSED ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  static const auto real = next<VectorAt>("pwritev");
  return wraps(parts, count) ? vector_call(SYS_pwritev, fd, parts, count, offset, 0)
                             : real(fd, parts, count, offset);
}

TIERMEM_INTERPOSED ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  static const auto real = next<VectorFlags>("preadv2");
  return wraps(parts, count) ? vector_call(SYS_preadv2, fd, parts, count, offset, flags)
                             : real(fd, parts, count, offset, flags);
}

TIERMEM_INTERPOSED ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset,
                                    int flags) {
  static const auto real = next<VectorFlags>("pwritev2");
  return wraps(parts, count) ? vector_call(SYS_pwritev2, fd, parts, count, offset, flags)
                             : real(fd, parts, count, offset, flags);
}

TIERMEM_INTERPOSED ssize_t preadv64(int fd, const iovec* parts, int count, off64_t offset) {
  return preadv(fd, parts, count, offset);
}
TIERMEM_INTERPOSED ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) {
  return pwritev(fd, parts, count, offset);
}
TIERMEM_INTERPOSED ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset,
                                      int flags) {
  return preadv2(fd, parts, count, offset, flags);
}
TIERMEM_INTERPOSED ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset,
                                       int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

TIERMEM_INTERPOSED ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  return wrapping() && any_wrapped(message) ? message_call(SYS_sendmsg, fd, message, flags)
                                            : real(fd, message, flags);
}

TIERMEM_INTERPOSED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  return wrapping() && any_wrapped(message) ? message_call(SYS_recvmsg, fd, message, flags)
                                            : real(fd, message, flags);
}

TIERMEM_INTERPOSED int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  static const auto real = next<int (*)(int, mmsghdr*, unsigned, int)>("sendmmsg");
  if (!any_wrapped_message(messages, count)) {
    return real(fd, messages, count, flags);
  }
  count = std::min<unsigned>(count, IOV_MAX);
  for (unsigned i = 0; i < count; ++i) {
    const ssize_t sent = sendmsg(fd, &messages[i].msg_hdr, flags);
    if (sent < 0) {
      return i == 0 ? -1 : static_cast<int>(i);
    }
    messages[i].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(count);
}

// The timeout is checked between messages only, as in the kernel.
TIERMEM_INTERPOSED int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags,
                                timespec* timeout) {
  static const auto real = next<int (*)(int, mmsghdr*, unsigned, int, timespec*)>("recvmmsg");
  if (!any_wrapped_message(messages, count)) {
    return real(fd, messages, count, flags, timeout);
  }
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= kSecond)) {
    errno = EINVAL;
    return -1;
  }
  const std::int64_t end = timeout != nullptr ? end_of(*timeout) : INT64_MAX;
  for (unsigned i = 0; i < count; ++i) {
    const int rest = i > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
    const ssize_t got = recvmsg(fd, &messages[i].msg_hdr, (flags & ~MSG_WAITFORONE) | rest);
    if (got < 0) {
      return i == 0 ? -1 : static_cast<int>(i);
    }
    messages[i].msg_len = static_cast<unsigned>(got);
    if (tiermem::now_ns() >= end) {
      return static_cast<int>(i + 1);
    }
  }
  return static_cast<int>(count);
}

}  // extern "C"

#endif

// The calls on signals, with SIGSYS removed from every mask. libc sometimes blocks all signals for
// itself. Then it passes only plain memory to the kernel (malloc.cpp, exec.cpp).
#include "preload/signals.hpp"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>

#include "base/results.hpp"
#include "preload/cancellation.hpp"
#include "preload/next.hpp"
#include "preload/region.hpp"
#include "preload/system_call.hpp"
#include "preload/wrap.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

// The program's own handler, as last set by any thread. Signal handlers read it: two words that
// change one by one. A program that changes its handler while signals arrive has to expect that.
struct sigaction g_programs {};

/// libc's own functions, found when the process starts, because handlers and children of vfork must
/// not use the loader.
struct Libc {
  int (*sigaction)(int, const struct sigaction*, struct sigaction*) = nullptr;
  sighandler_t (*signal)(int, sighandler_t) = nullptr;
  int (*sigprocmask)(int, const sigset_t*, sigset_t*) = nullptr;
  int (*pthread_sigmask)(int, const sigset_t*, sigset_t*) = nullptr;
  int (*sigsuspend)(const sigset_t*) = nullptr;
  int (*ppoll)(pollfd*, nfds_t, const timespec*, const sigset_t*) = nullptr;
  int (*pselect)(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*) = nullptr;
  int (*epoll_pwait)(int, epoll_event*, int, int, const sigset_t*) = nullptr;
  int (*sigaltstack)(const stack_t*, stack_t*) = nullptr;
  int (*pthread_attr_setstack)(pthread_attr_t*, void*, std::size_t) = nullptr;
};

const Libc& libc() {
  static const Libc found = [] {
    Libc all;
    find(all.sigaction, "sigaction");
    find(all.signal, "signal");
    find(all.sigprocmask, "sigprocmask");
    find(all.pthread_sigmask, "pthread_sigmask");
    find(all.sigsuspend, "sigsuspend");
    find(all.ppoll, "ppoll");
    find(all.pselect, "pselect");
    find(all.epoll_pwait, "epoll_pwait");
    find(all.sigaltstack, "sigaltstack");
    find(all.pthread_attr_setstack, "pthread_attr_setstack");
    return all;
  }();
  return found;
}

/// The mask, without SIGSYS if system calls are wrapped. Null stays null.
class Mask {
 public:
  explicit Mask(const sigset_t* mask) : mask_(mask) {
    if (mask != nullptr && wrapping()) {
      copy_ = *mask;
      must(::sigdelset(&copy_, SIGSYS));
      mask_ = &copy_;
    }
  }
  const sigset_t* get() const { return mask_; }

 private:
  const sigset_t* mask_;
  sigset_t copy_{};
};

int set_action(int number, const struct sigaction* wanted, struct sigaction* before) {
  if (!wrapping()) {
    return libc().sigaction(number, wanted, before);
  }
  if (number == SIGSYS) {
    const struct sigaction was = g_programs;
    if (wanted != nullptr) {
      g_programs = *wanted;
    }
    if (before != nullptr) {
      *before = was;
    }
    return 0;
  }
  if (wanted == nullptr) {
    return libc().sigaction(number, nullptr, before);
  }
  struct sigaction copy = *wanted;
  must(::sigdelset(&copy.sa_mask, SIGSYS));
  return libc().sigaction(number, &copy, before);
}

// The kernel writes there whenever a signal comes, and kills the process if the page is absent.
thread_local constinit Part t_stack{};

void keep_stack(const stack_t& stack) {
  const Part before = t_stack;
  t_stack = {};
  if ((stack.ss_flags & SS_DISABLE) == 0) {
    t_stack = {static_cast<std::byte*>(stack.ss_sp), stack.ss_size};
    (void)keep_resident(t_stack);
  }
  if (before.length != 0 && before.begin != t_stack.begin) {
    let_leave(before);
  }
}

Part part_of(pthread_mutex_t* mutex) {
  return {reinterpret_cast<std::byte*>(mutex), sizeof *mutex};
}

}  // namespace

void prepare_signals() {
  (void)libc();
}

void take_sigsys(SignalAction action) {
  struct sigaction ours {};
  ours.sa_sigaction = action;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
#if defined(__x86_64__)
  // sigaddset would refuse this signal.
  memcpy(&ours.sa_mask, &kCancelSignal, sizeof(kCancelSignal));
#endif
  (void)libc().sigaction(SIGSYS, &ours, &g_programs);
  sigset_t open;
  must(::sigemptyset(&open));
  must(::sigaddset(&open, SIGSYS));
  (void)libc().pthread_sigmask(SIG_UNBLOCK, &open, nullptr);
}

void call_programs_sigsys(int number, siginfo_t* info, void* context) {
  const struct sigaction programs = g_programs;
  if ((programs.sa_flags & SA_SIGINFO) != 0) {
    programs.sa_sigaction(number, info, context);
  } else if (programs.sa_handler == SIG_DFL) {
    struct sigaction end {};
    end.sa_handler = SIG_DFL;
    (void)libc().sigaction(SIGSYS, &end, nullptr);
    best_effort(::raise(SIGSYS), "it was blocked and is pending: nothing more can be done");
  } else if (programs.sa_handler != SIG_IGN) {
    programs.sa_handler(number);
  }
}

}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED int sigaction(int number, const struct sigaction* wanted,
                                 struct sigaction* before) noexcept {
  return set_action(number, wanted, before);
}

TIERMEM_INTERPOSED sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (number != SIGSYS || !wrapping()) {
    return libc().signal(number, handler);
  }
  struct sigaction wanted {
  }, before{};
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART;
  (void)set_action(SIGSYS, &wanted, &before);
  return before.sa_handler;
}

TIERMEM_INTERPOSED int sigprocmask(int how, const sigset_t* mask, sigset_t* before) noexcept {
  const Mask ours(mask);
  return libc().sigprocmask(how, ours.get(), before);
}

TIERMEM_INTERPOSED int pthread_sigmask(int how, const sigset_t* mask, sigset_t* before) noexcept {
  const Mask ours(mask);
  return libc().pthread_sigmask(how, ours.get(), before);
}

TIERMEM_INTERPOSED int pthread_cancel(pthread_t thread) {
  static const auto libcs = next<int (*)(pthread_t)>("pthread_cancel");
#if defined(__x86_64__)
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (wrapping()) {
    tiermem::must(::pthread_once(&once, [] { take_cancellation(libcs); }));
  }
#endif
  return libcs(thread);
}

TIERMEM_INTERPOSED int sigsuspend(const sigset_t* mask) {
  const Mask ours(mask);
  return libc().sigsuspend(ours.get());
}

TIERMEM_INTERPOSED int ppoll(pollfd* files, nfds_t count, const timespec* timeout,
                             const sigset_t* mask) {
  const Mask ours(mask);
  return libc().ppoll(files, count, timeout, ours.get());
}

TIERMEM_INTERPOSED int pselect(int count, fd_set* reads, fd_set* writes, fd_set* exceptions,
                               const timespec* timeout, const sigset_t* mask) {
  const Mask ours(mask);
  return libc().pselect(count, reads, writes, exceptions, timeout, ours.get());
}

TIERMEM_INTERPOSED int epoll_pwait(int fd, epoll_event* events, int most, int timeout,
                                   const sigset_t* mask) {
  const Mask ours(mask);
  return libc().epoll_pwait(fd, events, most, timeout, ours.get());
}

TIERMEM_INTERPOSED int sigaltstack(const stack_t* wanted, stack_t* before) noexcept {
  if (wanted != nullptr && wrapping()) {
    keep_stack(*wanted);
  }
  return libc().sigaltstack(wanted, before);
}

TIERMEM_INTERPOSED int pthread_attr_setstack(pthread_attr_t* attributes, void* stack,
                                             size_t bytes) noexcept {
  // libc begins and ends threads with all signals blocked, including SIGSYS, and makes system calls
  // that name the stack. With wrapped calls that would end the process. The thread therefore gets a
  // stack of libc's own, of the same size.
  if (wrapping() && touches_regions(stack, bytes)) {
    return pthread_attr_setstacksize(attributes, bytes);
  }
  // When the thread ends, the kernel writes to libc's data at the upper end, and serves no faults
  // at that point.
  constexpr std::size_t kUpperEnd = std::size_t{64} << 10;
  const std::size_t kept = std::min(bytes, kUpperEnd);
  if (!keep_resident({static_cast<std::byte*>(stack) + (bytes - kept), kept})) {
    return EINVAL;
  }
  return libc().pthread_attr_setstack(attributes, stack, bytes);
}

// The kernel unlocks a robust mutex when its owner ends, but not if its page is absent.
TIERMEM_INTERPOSED int pthread_mutex_init(pthread_mutex_t* mutex,
                                          const pthread_mutexattr_t* attributes) noexcept {
  static const auto real =
      next<int (*)(pthread_mutex_t*, const pthread_mutexattr_t*)>("pthread_mutex_init");
  int robust = PTHREAD_MUTEX_STALLED;
  const bool is_robust = attributes != nullptr &&
                         pthread_mutexattr_getrobust(attributes, &robust) == 0 &&
                         robust == PTHREAD_MUTEX_ROBUST;
  if (is_robust && !keep_resident(part_of(mutex))) {
    return ENOMEM;
  }
  const int error = real(mutex, attributes);
  if (is_robust && error != 0) {
    let_leave(part_of(mutex));
  }
  return error;
}

TIERMEM_INTERPOSED int pthread_mutex_destroy(pthread_mutex_t* mutex) noexcept {
  static const auto real = next<int (*)(pthread_mutex_t*)>("pthread_mutex_destroy");
  // glibc stores the kind in the mutex; 16 means robust.
  constexpr int kRobust = 16;
  const bool is_robust = (mutex->__data.__kind & kRobust) != 0;
  const int error = real(mutex);
  if (is_robust && error == 0) {
    let_leave(part_of(mutex));
  }
  return error;
}

}  // extern "C"

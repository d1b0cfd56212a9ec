// Keeps handlers of the program from running in the middle of tiermem's work for a thread. Such a
// handler may touch absent memory, or change mappings: it would wait for locks of the thread that
// it interrupts.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/results.hpp"

namespace tiermem {

namespace detail {
constexpr std::uint64_t bit_of_signal(int signal) {
  return std::uint64_t{1} << (signal - 1);
}
}  // namespace detail

/// Blocks the signals that other threads and processes send, for the life of the object. Signals
/// that the thread raises by its own instructions stay open: the kernel would end the process.
class NoSignals {
 public:
  NoSignals() noexcept : before_(block()) {}
  ~NoSignals() { restore(before_); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

  /// The kernel's form: a bit for each signal.
  using Mask = std::uint64_t;
  /// Blocks the signals, and returns the mask to restore.
  static Mask block() noexcept {
    set(SIG_BLOCK, kSent);
    return t_old;  // No handler can have changed it.
  }
  static void restore(Mask mask) noexcept {
    t_new = mask;
    set(SIG_SETMASK, t_new);
  }

 private:
  static constexpr int kOfLibc = 32;  // It cancels threads, and changes user ids, by these two.
  static constexpr Mask kSent = [] {
    Mask sent = ~Mask{0};
    for (const int own :
         {SIGSEGV, SIGBUS, SIGSYS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, kOfLibc, kOfLibc + 1}) {
      sent &= ~detail::bit_of_signal(own);
    }
    return sent;
  }();
  // By number, and not from the stack: where system calls are wrapped, a pointer to a stack in
  // tiered memory would lead to a handler that blocks signals by this class.
  static void set(int how, const Mask& mask) noexcept {
    must(::syscall(SYS_rt_sigprocmask, how, &mask, &t_old, sizeof(Mask)) == 0 ? 0 : -1);
  }
  static inline __thread Mask t_new __attribute__((tls_model("initial-exec"))) = 0;
  static inline __thread Mask t_old __attribute__((tls_model("initial-exec"))) = 0;

  const Mask before_;
};

/// Neither handlers of the program nor a cancellation interrupt the thread from hold() to allow().
/// For sections that begin and end in different functions, as a fork does. A plain value.
struct Interruptions {
  static Interruptions hold() noexcept {
    Interruptions before{};
    must(::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.cancel));
    before.mask = NoSignals::block();
    return before;
  }
  void allow() const noexcept {
    NoSignals::restore(mask);
    must(::pthread_setcancelstate(cancel, nullptr));
  }

  NoSignals::Mask mask = 0;
  int cancel = 0;
};

}  // namespace tiermem

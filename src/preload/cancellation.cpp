// The wait, and the handler that runs before libc's own. See cancellation.hpp.
#include "preload/cancellation.hpp"

#if defined(__x86_64__)

#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>

#include "base/results.hpp"

// long tiermem_wait(const SystemCall* call, const volatile bool* cancelled): makes the call, or
// returns -EINTR if the thread is cancelled before the call begins. If the handler finds the thread
// between begin and end, it moves it to `cancelled`: the call has not begun there, and the kernel
// would otherwise start it again. A thread past end already has its result.
asm(R"(
.text
.hidden tiermem_wait
.hidden tiermem_wait_begin
.hidden tiermem_wait_end
.hidden tiermem_wait_cancelled
.globl tiermem_wait, tiermem_wait_begin, tiermem_wait_end, tiermem_wait_cancelled
.type tiermem_wait, @function
tiermem_wait:
  .cfi_startproc
  movq %rsi, %rcx
  movq %rdi, %r11
  movq (%r11), %rax
  movq 8(%r11), %rdi
  movq 16(%r11), %rsi
  movq 24(%r11), %rdx
  movq 32(%r11), %r10
  movq 40(%r11), %r8
  movq 48(%r11), %r9
tiermem_wait_begin:
  cmpb $0, (%rcx)
  jne tiermem_wait_cancelled
  syscall
tiermem_wait_end:
  ret
tiermem_wait_cancelled:
  movq $-4, %rax
  ret
  .cfi_endproc
.size tiermem_wait, . - tiermem_wait
)");

extern "C" {
long tiermem_wait(const tiermem::preload::SystemCall* call, const volatile bool* cancelled);
extern const char tiermem_wait_begin[], tiermem_wait_end[], tiermem_wait_cancelled[];
}

namespace tiermem::preload {
namespace {

static_assert(offsetof(SystemCall, number) == 0 && offsetof(SystemCall, arguments) == 8 &&
              sizeof(SystemCall) == 56);

constexpr int kSignal = 32;  // A number, because libc's functions refuse this signal.

/// The kernel's record for rt_sigaction, which differs from libc's.
struct KernelAction {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

// Constant after take_cancellation().
void (*g_libcs)(int, siginfo_t*, void*) = nullptr;

thread_local constinit volatile bool t_cancelled = false;

long set_action(const KernelAction* wanted, KernelAction* before) {
  return pass({SYS_rt_sigaction,
               {kSignal, reinterpret_cast<std::uint64_t>(wanted),
                reinterpret_cast<std::uint64_t>(before), sizeof(std::uint64_t), 0, 0}});
}

void on_cancel(int number, siginfo_t* info, void* context) {
  t_cancelled = true;
  auto& at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  if (at >= reinterpret_cast<greg_t>(tiermem_wait_begin) &&
      at < reinterpret_cast<greg_t>(tiermem_wait_end)) {
    at = reinterpret_cast<greg_t>(tiermem_wait_cancelled);
  }
  g_libcs(number, info, context);
}

/// Whether libc's handler returns when it interrupts a wrapped call.
bool handler_returns() {
  int major = 0;
  int minor = 0;
  return std::sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 &&
         (major > 2 || (major == 2 && minor >= 41));
}

}  // namespace

void take_cancellation(int (*cancel)(pthread_t)) {
  pthread_t thread{};
  const auto wait = [](void*) -> void* {
    for (;;) {
      ::pause();
    }
  };
  if (!handler_returns() || ::pthread_create(&thread, nullptr, wait, nullptr) != 0) {
    return;  // Without this thread, a thread is cancelled only when its wrapped call ends.
  }
  must(cancel(thread));
  must(::pthread_join(thread, nullptr));
  KernelAction action{};
  if (set_action(nullptr, &action) == 0 && action.handler != nullptr) {
    g_libcs = action.handler;
    action.handler = on_cancel;
    (void)set_action(&action, nullptr);
  }
}

long pass_and_wait(const SystemCall& call) {
  const std::uint64_t cancel = kCancelSignal;
  std::uint64_t before = 0;
  const auto number = [](const void* at) { return reinterpret_cast<std::uint64_t>(at); };
  SystemCall mask{SYS_rt_sigprocmask, {1, number(&cancel), number(&before), 8, 0, 0}};  // Unblock.
  const SystemCall marked = passing(call);
  t_cancelled = false;
  (void)pass(mask);
  const long result = tiermem_wait(&marked, &t_cancelled);
  mask.arguments = {2, number(&before), 0, 8, 0, 0};  // Set.
  (void)pass(mask);
  return result;
}

}  // namespace tiermem::preload

#endif

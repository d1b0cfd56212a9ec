// Cancels threads that wait in a wrapped call. libc cancels with a signal of its own. Up to glibc
// 2.40 its handler unwinds the thread's frames wherever the thread is. From 2.41 on the handler
// unwinds only inside libc's own system call. Elsewhere it returns, the call continues to wait, and
// libc checks for cancellation only when a call ends with EINTR. With these versions the signal
// therefore ends the wait with EINTR.
//
// Any thread, also in a signal handler; x86-64 only.
#pragma once

#if defined(__x86_64__)

#include <pthread.h>

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// libc's signal for cancelling threads. Its handler may unwind the thread's frames, which is wrong
/// while the thread holds something. The handler of SIGSYS therefore keeps the signal blocked.
inline constexpr std::uint64_t kCancelSignal = std::uint64_t{1} << 31;

/// Call it once, before the process cancels its first thread; `cancel` is libc's own function. libc
/// installs its handler when it first cancels a thread, so this function cancels a thread made for
/// that.
void take_cancellation(int (*cancel)(pthread_t));
/// As pass(), but a thread that waits in the call may be cancelled. Cancellation runs no destructor
/// here.
long pass_and_wait(const SystemCall& call);

}  // namespace tiermem::preload

#endif

// Threads that are cancelled while a wrapped call waits. libc cancels by a signal of its own. Up to
// glibc 2.40 its handler leaves the thread's frames wherever the thread is. From 2.41 on it does so
// in libc's own system call only; elsewhere it returns, the call goes on waiting, and libc looks
// again when a call has ended with EINTR. So there the signal ends the wait with EINTR.
//
// Any thread, also in a handler of a signal; x86-64 only.
#pragma once

#if defined(__x86_64__)

#include <pthread.h>

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// libc's signal for threads that are cancelled. Its handler may leave the thread's frames, and may
/// not do so where something is held; so the handler of SIGSYS keeps it waiting.
inline constexpr std::uint64_t kCancelSignal = std::uint64_t{1} << 31;

/// Before the process cancels its first thread, once; `cancel` is libc's own. libc sets its handler
/// when it cancels a thread: one of ours is cancelled for it.
void take_cancellation(int (*cancel)(pthread_t));
/// As pass(); a thread that waits in the call may be cancelled there. This runs no destructor.
long pass_and_wait(const SystemCall& call);

}  // namespace tiermem::preload

#endif

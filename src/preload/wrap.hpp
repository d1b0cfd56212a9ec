// System calls on absent pages where the kernel may not have its own faults served (only user-mode
// userfaultfd to be had). A seccomp filter sends the calls that point into regions back to the
// program as SIGSYS; the handler does them with plain memory in the place of the tiered bytes,
// which it copies as any code of the program would: a touch of an absent page waits until it has
// been read. So no page need stay for the time of a call, and no call is begun that would have to
// be undone.
//
// What the filter cannot see, pointers behind pointers, is wrapped where libc's callers come in:
// vectors.cpp, exec.cpp. docs/decisions/wrap-syscalls.md has the reasons.
#pragma once

namespace tiermem::preload {

/// TIERMEM_WRAP_SYSCALLS: asked for, from the start of the process on.
bool wrapping();

/// At the start of the process: SIGSYS gets its handler.
void prepare_wrapping();
/// Before tiering begins: the filter, for all threads and for all that this process starts; and
/// windows get addresses that it knows. False, and `why` says it: it cannot be.
bool start_wrapping(const char*& why);

}  // namespace tiermem::preload

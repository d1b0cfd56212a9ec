// System calls on absent pages, for systems where only user-mode userfaultfd is available and the
// kernel's own faults are not served. A seccomp filter returns the calls that point into regions to
// the program as SIGSYS. The handler makes these calls with plain memory in place of the tiered
// bytes. It copies the bytes as any code of the program would: a touch of an absent page waits
// until the page has been read. No page needs to stay for the duration of a call, and no call has
// to be undone.
//
// The filter cannot see pointers behind pointers. vectors.cpp and exec.cpp wrap these calls in
// libc's functions. docs/decisions/wrap-syscalls.md has the reasons.
#pragma once

namespace tiermem::preload {

/// Whether TIERMEM_WRAP_SYSCALLS asks for wrapping. Constant from the start of the process.
bool wrapping();

/// Installs the handler of SIGSYS. Call it when the process starts.
void prepare_wrapping();
/// Installs the filter, for all threads and for all programs that this process starts, and gives
/// windows addresses that the filter knows. Call it before tiering begins. On failure returns false
/// and sets `why`.
bool start_wrapping(const char*& why);

}  // namespace tiermem::preload

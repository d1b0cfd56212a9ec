// The program's signals when system calls are wrapped. SIGSYS stays tiermem's and is never blocked,
// and every handler may make wrapped calls. Any thread.
#pragma once

#include <signal.h>

namespace tiermem::preload {

using SignalAction = void (*)(int, siginfo_t*, void*);

/// Call it once when the process starts.
void prepare_signals();
/// Call it once when the process starts: `action` is called for SIGSYS, with no signal blocked.
void take_sigsys(SignalAction action);
/// Calls the program's own handler as the kernel would have.
void call_programs_sigsys(int number, siginfo_t* info, void* context);

}  // namespace tiermem::preload

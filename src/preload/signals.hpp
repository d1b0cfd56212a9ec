// What the program does with signals, where system calls are wrapped: SIGSYS stays tiermem's and is
// never blocked, and whatever handler runs may make calls that are wrapped. Any thread.
#pragma once

#include <signal.h>

namespace tiermem::preload {

using SignalAction = void (*)(int, siginfo_t*, void*);

/// At the start of the process.
void prepare_signals();
/// At the start of the process, once: `action` is called for SIGSYS, with no signal blocked.
void take_sigsys(SignalAction action);
/// As the kernel would have called the program's own handler.
void call_programs_sigsys(int number, siginfo_t* info, void* context);

}  // namespace tiermem::preload

// Programs that are started: the kernel reads their arguments and variables, strings behind
// pointers, when it has left the caller. Any thread, also a child of vfork.
#pragma once

#if defined(__x86_64__)

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// At the start of the process.
void prepare_exec();

/// execve and execveat with everything in plain memory. Minus the error.
long wrapped_exec(const SystemCall& call);

}  // namespace tiermem::preload

#endif

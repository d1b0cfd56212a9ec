// Starting programs. The kernel reads the arguments and variables, strings behind pointers, after
// it has left the caller. Any thread, also a child of vfork.
#pragma once

#if defined(__x86_64__)

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// Call it once when the process starts.
void prepare_exec();

/// execve and execveat with all strings in plain memory. Returns minus the error.
long wrapped_exec(const SystemCall& call);

}  // namespace tiermem::preload

#endif

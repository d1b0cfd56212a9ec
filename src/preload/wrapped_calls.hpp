// What each system call reads and writes through its pointers, and how it is made with plain memory
// in their place. Any thread, also in handlers of signals.
#pragma once

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// Makes the call, of which pointers are tiered. The result, or minus the error.
long wrapped_call(const SystemCall& call);

}  // namespace tiermem::preload

// Makes system calls with plain memory in place of the tiered memory that their pointers refer to.
// Any thread, also in signal handlers.
#pragma once

#include "preload/system_call.hpp"

namespace tiermem::preload {

/// Makes a call that has tiered pointers. Returns the result, or minus the error.
long wrapped_call(const SystemCall& call);

}  // namespace tiermem::preload

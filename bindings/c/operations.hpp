// Operations of a C program: they live until tm_op_wait() or tm_queue_drain() has consumed them, so
// a program may poll, ask for the error, and wait for a whole list again after a timeout.
//
// Threads: any. The context has the operations (runtime/ops.hpp); there is no state here.
#pragma once

#include "runtime/ops.hpp"
#include "tm_context.hpp"

namespace tiermem::c_abi {

/// Returns the state of an operation. A context that has ended, or that belongs to the parent
/// process, has none: the status is then shut_down.
Ops::Outcome look_at(const char* call, tm_context& context, OpHandle op);

}  // namespace tiermem::c_abi

// This process's place in a run: what it may use of the budget that the processes under one
// `tiermem run` share, and what it tells of itself. Without a run all calls do nothing.
//
// Threads: join_run and follow_run once, by the thread that starts tiering. A thread of its own
// sleeps until the share is another, and changes the budget.
#pragma once

#include <cstdint>

#include "tiermem/context.hpp"

namespace tiermem::preload {

/// Takes a seat; returns the share, or a little where others have not given theirs up yet. 0: this
/// process is in no run, and has its budget for itself.
std::uint64_t join_run();
/// The context's budget follows the share from now on, and its counters are published.
void follow_run(Context& context);
/// The last word of a process that ends.
void end_run();
/// After follow_run in the parent, once the child's context works.
void rejoin_run_in_child();

}  // namespace tiermem::preload

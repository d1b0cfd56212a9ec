// This process's place in a run: what it may use of the budget that the processes under one
// `tiermem run` share, and what it tells of itself. Without a run all calls do nothing.
//
// Threads: join_run and follow_run once, by the thread that starts tiering. A thread of its own
// sleeps until the share is another, and changes the budget.
#pragma once

#include <cstdint>
#include <string>

#include "tiermem/context.hpp"

namespace tiermem::preload {

/// Stores the name and number of this process. A filter of system calls may forbid to ask later.
void find_own_name();
/// Takes a row; returns the share without the `plain` bytes that the process has already, or a
/// little where others have not given theirs up yet, and where there is no seat any more. 0: this
/// process is in no run, and has its budget for itself.
std::uint64_t join_run(std::uint64_t plain);
/// DRAM of the whole run in bytes; 0: this process is in none.
std::uint64_t run_total();
/// This process is not tiered, or no longer: a sentence that the end of the run shows, or this
/// process where there is no run. Any thread; no system call in a run without a log.
void tell_not_tiered(const std::string& why);
/// The context's budget follows the share from now on, and its counters are published.
void follow_run(Context& context);
/// What is tiered may leave memory no more: from now on the budget is what there is, whatever the
/// share. Any thread.
void keep_to_no_budget();
/// The last word of a process that ends.
void end_run();
/// After follow_run in the parent, once the child's context works.
void rejoin_run_in_child();

}  // namespace tiermem::preload

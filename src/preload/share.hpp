// This process's place in a run. It follows its share of the budget of one `tiermem run`, and
// publishes its counters. Without a run all calls do nothing.
//
// Threads: the thread that starts tiering calls join_run and follow_run once. A separate thread
// sleeps until the share changes, and changes the budget.
#pragma once

#include <cstdint>
#include <string>

#include "tiermem/context.hpp"

namespace tiermem::preload {

/// Stores the name and number of this process. A system call filter may forbid the queries later.
void find_own_name();
/// Takes a row. Returns the share without the `plain` bytes that the process already has. Returns a
/// small number if other processes have not given up theirs yet, or if there is no free seat. 0:
/// this process is in no run, and has its budget for itself.
std::uint64_t join_run(std::uint64_t plain);
/// DRAM of the whole run in bytes; 0 if this process is in none.
std::uint64_t run_total();
/// Reports that this process is not tiered, or no longer; `why` is a sentence. The end of the run
/// shows it. Without a run, this process reports it itself. Any thread; no system call in a run
/// without a log.
void tell_not_tiered(const std::string& why);
/// The context's budget follows the share from now on, and its counters are published.
void follow_run(Context& context);
/// Tiered bytes can no longer leave memory. From now on the budget covers all of them, whatever the
/// share is. Any thread.
void keep_to_no_budget();
/// Publishes the final counters of a process that ends.
void end_run();
/// After follow_run in the parent, once the child's context works.
void rejoin_run_in_child();

}  // namespace tiermem::preload

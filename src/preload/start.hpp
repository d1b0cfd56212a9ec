// The first thing a process does in the preload library, before any block is given out: tiermem's
// arena gets its range, and the fork handlers their places. Any thread, again and again; done once.
#pragma once

namespace tiermem::preload {

void start_process();

/// What the preload library itself does around a fork, before and after tiermem's context does.
void before_fork_of_program();
void after_fork_of_program_in_parent();
void after_fork_of_program_in_child();

}  // namespace tiermem::preload

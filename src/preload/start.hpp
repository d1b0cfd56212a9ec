// The first thing a process does in the preload library, before any block is given out: tiermem's
// arena gets its range, and the fork handlers their places. Any thread, again and again; done once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

void start_process();
/// Whether it was called and has ended. A program with a malloc of its own may map memory before.
bool process_has_started();

/// Address space of the arena where that of the process is limited to `limit` bytes: the program
/// needs most of it. Pure.
std::size_t arena_bytes_under(std::uint64_t limit);

/// What the preload library itself does around a fork, before and after tiermem's context does.
void before_fork_of_program();
void after_fork_of_program_in_parent();
void after_fork_of_program_in_child();

}  // namespace tiermem::preload

// The first code that a process runs in the preload library, before it allocates any block:
// tiermem's arena gets its range, and the fork handlers are registered. Any thread may call it
// repeatedly; it runs once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

void start_process();
/// Whether it was called and has ended. A program with its own malloc may map memory earlier.
bool process_has_started();

/// Address space of the arena if the process's is limited to `limit` bytes: the program needs most
/// of it. Pure.
std::size_t arena_bytes_under(std::uint64_t limit);

/// Returns false in a child of vfork, which shares the memory of its parent.
bool in_own_process();

/// The preload library's own part of a fork, before and after that of tiermem's context. No signal
/// of the program is served between the two.
void before_fork_of_program();
void after_fork_of_program_in_parent();
void after_fork_of_program_in_child();

}  // namespace tiermem::preload

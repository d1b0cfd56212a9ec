// A reserve of the process's memory: where the kernel refuses the arena more, what a thread inside
// tiermem (ArenaScope) asks for comes from here, so that what is under way can end, and what is
// asked for meanwhile is refused in words and not by bad_alloc. Any thread.
#pragma once

namespace tiermem {

/// Asks the kernel for what is missing of it. True: it is whole.
bool arena_fill_reserve() noexcept;
/// Some of it is in use.
bool arena_uses_reserve() noexcept;

}  // namespace tiermem

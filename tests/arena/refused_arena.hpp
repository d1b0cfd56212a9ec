// A door of the arena: it refuses allocations of one thread. This program's arena_allocate() is
// linked through it (--wrap), so the library has no such door.
#pragma once

#include <cstdint>

namespace tiermem::test {

/// While it lives, this thread's n-th allocation from the arena is refused, counted from 1, and
/// with `for_good` each one after it. One at a time for each thread.
class RefusedArena {
 public:
  explicit RefusedArena(std::uint64_t n, bool for_good = false);
  ~RefusedArena();
  RefusedArena(const RefusedArena&) = delete;
  RefusedArena& operator=(const RefusedArena&) = delete;
  /// Whether one was refused.
  static bool refused();
};

}  // namespace tiermem::test

// A wrapper of the arena that refuses allocations of one thread. Only this program's
// arena_allocate() is linked through it (--wrap); the library has no such code.
#pragma once

#include <cstdint>

namespace tiermem::test {

/// While it lives, this thread's n-th allocation from the arena is refused, counted from 1. With
/// `for_good` all later ones are refused too. Each thread has at most one.
class RefusedArena {
 public:
  explicit RefusedArena(std::uint64_t n, bool for_good = false);
  ~RefusedArena();
  RefusedArena(const RefusedArena&) = delete;
  RefusedArena& operator=(const RefusedArena&) = delete;
  /// Returns whether an allocation was refused.
  static bool refused();
};

}  // namespace tiermem::test

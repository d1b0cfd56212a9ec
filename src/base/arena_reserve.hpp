// A reserve of the process's memory. Where the kernel refuses the arena more, the threads that move
// bytes allocate from the reserve, so that requests under way can end. Callers never take from it:
// their calls end with no_capacity, and as many of them as there are cannot use it up.
#pragma once

#include "base/arena.hpp"

namespace tiermem {

/// Asks the kernel for what is missing of it. True: it is whole.
bool arena_fill_reserve() noexcept;
/// Some of it is in use.
bool arena_uses_reserve() noexcept;

/// The bit of ThreadMark::depth that says: this thread may use the reserve.
inline constexpr unsigned kMayUseReserve = 1u << 31;

/// The calling thread may use the reserve for the life of the object. Does not nest.
class ReserveScope {
 public:
  ReserveScope() noexcept { detail::thread_mark.depth |= kMayUseReserve; }
  ~ReserveScope() { detail::thread_mark.depth &= ~kMayUseReserve; }
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;
};

}  // namespace tiermem

// An emergency reserve of memory for the process. When the kernel refuses memory to the arena, the
// threads that move bytes allocate from the reserve, so that requests in progress can end. Callers
// never use it: their calls end with no_capacity, so no number of callers can exhaust it.
#pragma once

#include "base/arena.hpp"

namespace tiermem {

/// Asks the kernel for the missing part of the reserve. Returns true if the reserve is complete.
bool arena_fill_reserve() noexcept;
/// Returns whether a part of the reserve is in use.
bool arena_uses_reserve() noexcept;

/// The bit of ThreadMark::depth that lets this thread use the reserve.
inline constexpr unsigned kMayUseReserve = 1u << 31;

/// Lets the calling thread use the reserve for the life of the object. Scopes do not nest.
class ReserveScope {
 public:
  ReserveScope() noexcept { detail::thread_mark.depth |= kMayUseReserve; }
  ~ReserveScope() { detail::thread_mark.depth &= ~kMayUseReserve; }
  /// Returns whether the calling thread is in such a scope.
  static bool is_on() noexcept { return (detail::thread_mark.depth & kMayUseReserve) != 0; }
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;
};

}  // namespace tiermem

// The limits of a call that waits: its deadline, and the flag of its operation. A value.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "mover/request.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// The deadline of a call that begins now.
std::int64_t deadline_of(Timeout timeout);

struct CallLimits {
  std::int64_t deadline_ns = Request::kForever;
  bool never_waits = false;
  const std::atomic<bool>* cancel = nullptr;  ///< Null, or a flag that is set to end the call.

  static CallLimits of(Timeout timeout, const std::atomic<bool>* cancel = nullptr) {
    return {deadline_of(timeout), timeout.ns == 0, cancel};
  }
  bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
  /// Returns when an operation ends that has not begun. One that never waits for bytes does wait
  /// for its turn.
  std::int64_t deadline_to_begin() const { return never_waits ? Request::kForever : deadline_ns; }
  /// Returns the time that is left.
  Timeout left() const {
    if (never_waits || deadline_ns == Request::kForever) {
      return never_waits ? Timeout::none() : Timeout::forever();
    }
    return {std::max<std::int64_t>(1, deadline_ns - now_ns())};
  }
};

}  // namespace tiermem

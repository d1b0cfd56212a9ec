// The end of something that goes on elsewhere: a copy, or what a stream has been given. Whoever
// begins it owns the Ending and leaves it alone until `ended` has been called, once.
#pragma once

#include <cstdint>

#include "tiermem/status.hpp"

namespace tiermem {

struct Ending {
  /// If any, of a copy to a device: before `ended`, once it stands in the order of the device's
  /// copies. `ordinal` is its place there, from 1.
  void (*begun)(Ending&, std::uint64_t ordinal) = nullptr;
  /// On the thread that saw the end, which it must not hold up. `status` says how it ended; the
  /// Ending may be destroyed here.
  void (*ended)(Ending&) = nullptr;
  Status status;
};

}  // namespace tiermem

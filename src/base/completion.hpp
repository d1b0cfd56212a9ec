// The completion of asynchronous work: of a copy, or of the work that a stream was given. The code
// that starts the work owns the Completion, and does not touch it until `ended` has been called,
// once.
#pragma once

#include <cstdint>

#include "tiermem/status.hpp"

namespace tiermem {

struct Completion {
  /// Optional, for a copy to a device. Called before `ended`, once the copy has its place in the
  /// order of the device's copies. `ordinal` is this place, from 1.
  void (*begun)(Completion&, std::uint64_t ordinal) = nullptr;
  /// Called on the thread that detected the end. It must not delay that thread. `status` is the
  /// result. It may destroy the Completion.
  void (*ended)(Completion&) = nullptr;
  Status status;
};

}  // namespace tiermem

// Why extents leave, while the code that lets them leave runs: known where it
// is decided, and needed where it ends. The stepping thread only.
#pragma once

#include "mover/mover.hpp"

namespace tiermem {

/// For its scope; nests.
class Mover::Leaving {
 public:
  Leaving(Mover& mover, Reason reason) : mover_(mover), before_(mover.leaving_) {
    mover.leaving_ = reason;
  }
  ~Leaving() { mover_.leaving_ = before_; }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  Mover& mover_;
  const Reason before_;
};

}  // namespace tiermem

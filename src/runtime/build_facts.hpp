// The abilities of this build, for layers that include no tier.
#pragma once

#include "tier/page_codec.hpp"

namespace tiermem {

/// Returns whether pages can be compressed: the option `compressed`.
inline bool build_compresses() {
  return PageCodec::available();
}

}  // namespace tiermem

// A direct path between slots and opaque memory, without a copy in host memory. No processor sees
// these bytes, so they get no checksum and no comparison: the path is for bytes without checksums.
#pragma once

#include <cstdint>

#include "base/completion.hpp"
#include "tier/memory.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class DirectPath {
 public:
  virtual ~DirectPath() = default;
  /// [mover] Returns whether the path can move bytes of the slot to and from that memory.
  virtual bool reaches(const Memory& memory, SlotId slot) const = 0;

  // [worker] Starts a copy, and calls `end.ended`, possibly before this returns. The status is `ok`
  // only if all bytes were copied. No other code uses the slot and the frame until that call. After
  // an error, the content of the destination is undefined.
  virtual void fetch(Memory& memory, FrameId to, SlotId from, std::uint64_t bytes,
                     Completion& end) = 0;
  virtual void store(SlotId to, Memory& memory, FrameId from, std::uint64_t bytes,
                     Completion& end) = 0;
};

}  // namespace tiermem

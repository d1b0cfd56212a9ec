// A path between slots and opaque memory past the host. What goes by it is seen by no processor: no
// checksum is made of it or compared, so it is for bytes that have none.
#pragma once

#include <cstdint>

#include "base/ending.hpp"
#include "tier/tier.hpp"

namespace tiermem {

class DirectPath {
 public:
  virtual ~DirectPath() = default;
  /// [mover] Bytes of the slot can come into that memory and leave it so.
  virtual bool reaches(const AddressableTier& memory, SlotId slot) const = 0;

  // [hand] The copy goes on, and `end.ended` will be called, perhaps before this returns, with `ok`
  // only where all bytes went. The slot and the frame are nobody else's until then; after an error
  // whichever of the two was written has any bytes.
  virtual void fetch(AddressableTier& memory, FrameId to, SlotId from, std::uint64_t bytes,
                     Ending& end) = 0;
  virtual void store(SlotId to, AddressableTier& memory, FrameId from, std::uint64_t bytes,
                     Ending& end) = 0;
};

}  // namespace tiermem

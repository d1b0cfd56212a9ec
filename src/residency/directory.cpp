// Lookups in the directory that take more than a line.
#include "residency/directory.hpp"

namespace tiermem {

unsigned Directory::readable_elsewhere(ExtentRef ref, unsigned space) const {
  for (unsigned other = 0; other < spaces(); ++other) {
    if (other != space && readable(ref, other)) {
      return other;
    }
  }
  return kNoSpace;
}

FrameRequest Directory::frame_request(ExtentRef ref, unsigned space) const {
  const BufferRecord& record = record_of(ref);
  const std::uint64_t domain = record.domain == kIsolatedDomain ? handle_of(ref) : record.domain;
  return {space == kHost ? record.pool : Pool::locked, bytes_of(ref), domain};
}

std::byte* Directory::address_in_window(ExtentRef ref, unsigned space) const {
  const BufferRecord& record = record_of(ref);
  // Relaxed: a caller that needs a window has set it before it posted the request, and the window
  // stays for the life of the buffer.
  std::byte* const window = record.windows[space].load(std::memory_order_relaxed);
  const std::uint64_t i = number_of(ref);
  return window == nullptr ? nullptr
                           : window + (i << record.extent_shift.load(std::memory_order_relaxed));
}

bool Directory::slot_is_newest(ExtentRef ref) const {
  const Extent& extent = at(ref);
  if (!extent.has_slot || extent.slot_stale) {
    return false;
  }
  for (unsigned space = 0; space < spaces(); ++space) {
    const ExtentBits bits = word(space, ref).load();
    if (bits.readable() && bits.dirty()) {
      return false;
    }
  }
  return true;
}

}  // namespace tiermem

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

SlotCopy Directory::slot_copy(ExtentRef ref) const {
  using State = SlotCopy::State;
  const Extent& extent = at(ref);
  if (!has_slot_copy(ref)) {
    return {};
  }
  if (extent.has_slot && extent.slot_stale) {
    return {extent.slot, SlotCopy::Tier::block, State::partial};
  }
  const State state = dirty_in_memory(ref) ? State::old : State::current;
  return extent.has_slot ? SlotCopy{extent.slot, SlotCopy::Tier::block, state}
                         : SlotCopy{slot_in_file(ref), SlotCopy::Tier::file, state};
}

bool Directory::dirty_in_memory(ExtentRef ref) const {
  for (unsigned space = 0; space < spaces(); ++space) {
    const ExtentBits bits = word(space, ref).load();
    if (bits.readable() && bits.dirty()) {
      return true;
    }
  }
  return false;
}

}  // namespace tiermem

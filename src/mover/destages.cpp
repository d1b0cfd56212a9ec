// The start of destages: a slot tier keeps a part of its slots ready for bytes that leave memory.
// The stepping thread only; never waits.
#include "mover/room.hpp"

namespace tiermem {

// Goes on as long as the mover steps, and with the end of each destage.
void Room::serve_destages() {
  for (SlotTiers::Entry* const tier : engine_.slots().writable()) {
    while (engine_.may_destage(*tier)) {
      const ExtentRef ref = engine_.copies().next_to_destage(*tier);
      SlotTiers::Entry* const to = engine_.copies().below(*tier);
      if (ref == kNoExtent || to == nullptr) {
        break;
      }
      const FrameId frame = frame_out_of_window(ref);
      if (!frame.valid()) {
        engine_.no_frame_to_destage();
        return;
      }
      engine_.start_destage(ref, frame, *to);
    }
  }
}

// Bytes pass through the frame and appear in no window: it needs an address of its own. The slowest
// memory with room gives it. If none has, a victim leaves for a later try.
FrameId Room::frame_out_of_window(ExtentRef ref) {
  const std::uint64_t bytes = directory_.bytes_of(ref);
  FrameRequest request = directory_.frame_request(ref, kHost);
  const auto memories = memories_.in(kHost);
  for (std::size_t rank = memories.size(); rank-- > 0;) {
    MemoryLedger& memory = *memories[rank];
    if (!engine_.takes_extents(memory)) {
      continue;
    }
    FrameId frame = memory.take_frame(request);
    if (frame.valid() && memory.tier->space().bytes_at(frame, nullptr) == nullptr) {
      memory.give_frame(frame, bytes);
      request.pool = Pool::locked;
      frame = memory.take_frame(request);
    }
    if (frame.valid()) {
      return frame;
    }
  }
  MemoryLedger& memory = memory_for(kHost, room_of(ref, kHost), bytes);
  make_room(memory, memory.freeing + memory.tier->usage().leaving + bytes, Priority::background);
  return {};
}

}  // namespace tiermem

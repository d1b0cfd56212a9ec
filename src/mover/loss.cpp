// A device that is gone, or has a broken context, never comes back: its copies are given up. Bytes
// with another copy stay there. The others are lost, and reported by buffer. The stepping thread
// only; never waits.
#include <algorithm>

#include "base/log.hpp"
#include "mover/desk.hpp"

namespace tiermem {

void Desk::serve_losses() {
  for (MemoryLedger& memory : memories_) {
    if (!memory.lost && memory.tier->lost()) {
      begin_loss(memory);
    }
    if (!memory.remains.empty()) {
      std::erase_if(memory.remains, [&](ExtentRef ref) { return let_go_of_lost(ref, memory); });
    }
  }
  for (const auto& [buffer, extents] : engine_.copies().take_losses()) {
    log_error(
        "{} extents of buffer '{}' are lost: their only copy was on a device; write them again",
        extents, residency_.buffers.at(buffer).label.get().view());
  }
}

void Desk::begin_loss(MemoryLedger& memory) {
  memory.lost = true;
  const Status why = memory.tier->loss();
  log_error("{}; extents that had their only copy there are lost; write them again", why.message());
  fail_each([&](const Request& request) -> std::optional<Status> {
    if (request.kind != RequestKind::acquire || wants_lost(request) == nullptr) {
      return {};
    }
    return Refusals::lost(memory);
  });
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
    directory_.each_begun(first, end, [&](ExtentRef ref) {
      if (directory_.word(memory.space, ref).load().phase() != Phase::none &&
          has_frame_of(memory, ref)) {
        memory.remains.push_back(ref);
      }
    });
  }
}

// Returns whether the extent's frame in the space of the memory, or the one that its transfer
// brings bytes to, is of this memory.
bool Desk::has_frame_of(const MemoryLedger& memory, ExtentRef ref) const {
  const Transfer* const transfer = engine_.transfer_of(ref);
  const bool comes = transfer != nullptr && transfer->space == memory.space;
  const FrameId frame = comes ? transfer->frame : directory_.frame(memory.space, ref);
  return &memories_.of(memory.space, frame) == &memory;
}

// Returns false if the extent cannot leave yet: a pin or a transfer holds it there, and will end.
bool Desk::let_go_of_lost(ExtentRef ref, MemoryLedger& memory) {
  Extent& extent = directory_.at(ref);
  const ExtentBits bits = directory_.word(memory.space, ref).load();
  if (bits.phase() == Phase::none || !has_frame_of(memory, ref)) {
    return true;
  }
  const bool only = bits.dirty() && directory_.readable_elsewhere(ref, memory.space) == kNoSpace;
  if (extent.transfer != 0 || !engine_.leave(ref, memory.space, true)) {
    return false;
  }
  if (only) {
    engine_.copies().drop_slot(ref);  // Its bytes are older ones.
    engine_.copies().lose(ref, memory);
  }
  engine_.extent_changed(ref, memory.space);
  return true;
}

}  // namespace tiermem

// A device that is gone, or has a broken context, never comes back: its copies are given up. Bytes
// with another copy stay there. The others are lost, and reported by buffer. The stepping thread
// only; never waits.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "mover/mover.hpp"

namespace tiermem {

void Mover::serve_losses() {
  for (Memory& memory : memories_) {
    if (!memory.lost && memory.tier->lost()) {
      begin_loss(memory);
    }
    if (!memory.remains.empty()) {
      std::erase_if(memory.remains, [&](ExtentRef ref) { return let_go_of_lost(ref, memory); });
    }
  }
  for (const auto& [buffer, extents] : engine_.take_losses()) {
    log_error("{} extents of buffer '{}' are lost: their only copy was on a device", extents,
              residency_.buffers.at(buffer).label.get().view());
  }
}

void Mover::begin_loss(Memory& memory) {
  memory.lost = true;
  const Status why = memory.tier->loss();
  log_error("{}; what had its only copy there is lost", why.message());
  fail_each([&](const Request& request) -> std::optional<Status> {
    if (request.want != Want::acquire || wants_lost(request) == nullptr) {
      return {};
    }
    return refuse_lost(memory);
  });
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
    directory_.each_begun(first, end, [&](ExtentRef ref) {
      if (directory_.word(memory.space, ref).load().phase() != Phase::none) {
        memory.remains.push_back(ref);
      }
    });
  }
}

const Memory* Mover::wants_lost(const Request& request) const {
  const auto need = std::find_if(request.needs.begin(), request.needs.end(),
                                 [&](const Need& each) { return memories_[each.space].lost; });
  return need == request.needs.end() ? nullptr : &memories_[need->space];
}

Status Mover::refuse_lost(const Memory& memory) {
  const Status why = memory.tier->loss();
  return fail_native(Code::unavailable, why.info() != nullptr ? why.info()->native : 0, "{}",
                     why.message());
}

// Returns false if the extent cannot leave yet: a pin or a transfer holds it there, and will end.
bool Mover::let_go_of_lost(ExtentRef ref, Memory& memory) {
  Extent& extent = directory_.at(ref);
  const ExtentBits bits = directory_.word(memory.space, ref).load();
  if (bits.phase() == Phase::none) {
    return true;
  }
  const bool only = bits.dirty() && directory_.readable_elsewhere(ref, memory.space) == kNoSpace;
  if (extent.transfer != 0 || !engine_.leave(ref, memory.space, true)) {
    return false;
  }
  if (only) {
    engine_.drop_slot(ref);  // Its bytes are older ones.
    engine_.lose(ref, memory.space);
  }
  engine_.extent_changed(ref, memory.space);
  return true;
}

// Says that the bytes were dropped or lost, and why.
Status Mover::no_bytes(ExtentRef ref) const {
  const BufferRecord& record = directory_.record_of(ref);
  const ExtentRef number = directory_.number_of(ref);
  const Extent& extent = directory_.at(ref);
  if (directory_.droppable(ref)) {
    return fail(
        Code::discarded,
        "the bytes of extent {} of droppable buffer '{}' were dropped to make room: acquire "
        "it with mode discard and write them again",
        number, record.label.get().view());
  }
  if (extent.lost_with == kHost) {
    return fail(Code::lost,
                "the bytes of extent {} of buffer '{}' are lost: a checksum did not match", number,
                record.label.get().view());
  }
  const AddressableTier& tier = *memories_[extent.lost_with].tier;
  return fail(Code::lost, "the bytes of extent {} of buffer '{}' are lost: {} had them{}{}", number,
              record.label.get().view(), place_name(tier.place()), tier.lost() ? "; " : "",
              tier.loss().message());
}

}  // namespace tiermem

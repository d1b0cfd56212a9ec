// A device that is gone, or whose context is broken, for good: its copies are given up. Bytes that
// are elsewhere, too, stay there; the others are lost, by name. The stepping thread only; never
// waits.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "mover/mover.hpp"

namespace tiermem {

void Mover::serve_losses() {
  for (Space& space : spaces_) {
    if (!space.lost && space.tier->lost()) {
      begin_loss(space);
    }
    if (!space.remains.empty()) {
      std::erase_if(space.remains, [&](ExtentRef ref) { return let_go_of_lost(ref, space); });
    }
  }
  for (const auto& [buffer, extents] : losses_) {
    log_error("{} extents of buffer '{}' are lost: their only copy was on a device", extents,
              residency_.buffers.at(buffer).label.get().view());
  }
  losses_.clear();
}

void Mover::begin_loss(Space& space) {
  space.lost = true;
  const Status why = space.tier->loss();
  log_error("{}; what had its only copy there is lost", why.message());
  fail_each([&](const Request& request) -> std::optional<Status> {
    if (request.want != Want::acquire || wants_lost(request) == nullptr) {
      return {};
    }
    return refuse_lost(space);
  });
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
    residency_.extents.each_begun(first, end, [&](ExtentRef ref) {
      if (residency_.extents.word(space.number, ref).load().phase() != Phase::none) {
        space.remains.push_back(ref);
      }
    });
  }
}

const Mover::Space* Mover::wants_lost(const Request& request) const {
  const auto need = std::find_if(request.needs.begin(), request.needs.end(),
                                 [&](const Need& each) { return spaces_[each.space].lost; });
  return need == request.needs.end() ? nullptr : &spaces_[need->space];
}

Status Mover::refuse_lost(const Space& space) {
  const Status why = space.tier->loss();
  return fail_native(Code::unavailable, why.info() != nullptr ? why.info()->native : 0, "{}",
                     why.message());
}

// False: not yet. Whoever holds it there lets go some time, and what is under way ends.
bool Mover::let_go_of_lost(ExtentRef ref, Space& space) {
  Extent& extent = residency_.extents.at(ref);
  const ExtentBits bits = residency_.extents.word(space.number, ref).load();
  if (bits.phase() == Phase::none) {
    return true;
  }
  const bool only = bits.dirty() && readable_elsewhere(ref, space.number) == kNoSpace;
  if (extent.transfer != 0 || !leave(ref, space.number, true)) {
    return false;
  }
  if (only) {
    drop_slot(ref);  // Its bytes are older ones.
    lose(ref, space.number);
  }
  extent_changed(ref, space.number, nullptr);
  return true;
}

void Mover::lose(ExtentRef ref, unsigned space) {
  residency_.extents.word(kHost, ref).set_phase(Phase::lost);
  residency_.extents.at(ref).lost_with = static_cast<std::uint8_t>(space);
  ++losses_[residency_.extents.at(ref).buffer];
}

// They were dropped, or are lost, and why.
Status Mover::no_bytes(ExtentRef ref) const {
  const BufferRecord& record = record_of(ref);
  const ExtentRef number = ref - record.first.load(std::memory_order_relaxed);
  const Extent& extent = residency_.extents.at(ref);
  if (droppable(ref)) {
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
  const AddressableTier& tier = *spaces_[extent.lost_with].tier;
  return fail(Code::lost, "the bytes of extent {} of buffer '{}' are lost: {} had them{}{}", number,
              record.label.get().view(), place_name(tier.place()), tier.lost() ? "; " : "",
              tier.loss().message());
}

}  // namespace tiermem

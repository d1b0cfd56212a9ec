// Forks as the parent's mover sees them: the mover comes to rest, a child reads the current slots,
// and ends later. The child itself is another process and is not simulated.
#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

void Simulation::fork_or_end() {
  if (!children_.empty() && world_.one_in(2)) {
    end_child(world_.below(children_.size()));
  } else if (children_.size() < 3 && mover_.can_follow_fork()) {
    fork();
  }
}

void Simulation::fork() {
  note("fork");
  forked_ = INT64_MAX;  // No request is answered until the mover has come to rest.
  mover_.rest(true);
  told_ = true;
  for (unsigned steps = 0; !mover_.rested(); ++steps) {
    check(steps < 100'000, "the mover does not come to rest\n" + mover_.describe());
    step();
    const std::int64_t next =
        std::min({disks_due(), files_.next_due(), workers_.next_due(), next_step_});
    check(mover_.rested() || next != INT64_MAX, "rest waits for nothing\n" + mover_.describe());
    world_.now = std::max(world_.now + 1, std::min(next, world_.now + 1'000'000));
  }
  Child& child = children_.emplace_back();
  child.number = mover_.parent_of_child();
  for (const auto& [serial, live] : live_) {
    const BufferRecord* record =
        live.adopted || !live.original.empty() ? nullptr : residency_.buffers.find(live.handle);
    const std::uint64_t extents = record == nullptr ? 0 : record->extents.load();
    for (std::uint64_t i = 0; i < extents; ++i) {
      const Extent& extent =
          residency_.extents.at(record->first.load() + static_cast<ExtentRef>(i));
      const SlotCopy& copy = extent.copy();
      // Compressed slots are the child's own: a fork copies the process's memory.
      if (copy.owned() && !copy.partial() && copy.tier >= first_block()) {
        const unsigned tier = copy.tier - first_block();
        const BlockTier& of = block(tier);
        child.slots.push_back({tier, copy.slot,
                               port(tier).peek(of.device_of(copy.slot), of.device_offset(copy.slot),
                                               of.bytes_of(copy.slot))});
      }
    }
  }
  forked_ = world_.now;
  mover_.rest(false);
  told_ = true;
}

void Simulation::end_child(std::size_t which) {
  note("child {} ends", children_[which].number);
  mover_.child_ended(children_[which].number);
  told_ = true;
  children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Simulation::compare_children() {
  if (steps_ % 16 != 0) {  // Expensive.
    return;
  }
  for (const Child& child : children_) {
    for (const auto& [tier, slot, bytes] : child.slots) {
      const BlockTier& of = block(tier);
      check(port(tier).holds(of.device_of(slot), of.device_offset(slot), bytes),
            fmt::format("a slot that child {} reads has changed", child.number));
    }
  }
}

}  // namespace tiermem::sim

// Climbs: extents of slower memories that are used, or that a hint names, move to the memory that
// they prefer, or towards it, in the background. Extents of memories that are faster than the
// preferred one go down to it. policy/climb.hpp decides how often. The stepping thread only; never
// waits.
#include <utility>

#include "mover/room.hpp"

namespace tiermem {

// A round goes on as long as the mover steps: where no request comes, no extent needs to climb.
void Room::serve_climbs() {
  constexpr unsigned kLooks = 128;
  if (memories_.in(kHost).size() == 1) {
    return;
  }
  for (MemoryLedger* const memory : memories_.in(kHost)) {
    for (std::uint32_t& vain = memory->climbs_in_vain; vain != 0; --vain) {
      climb_.was_in_vain();
    }
  }
  for (const ExtentRef ref : std::exchange(wishes_, {})) {
    (void)move_to_preferred(ref);
  }
  const std::uint32_t extents = residency_.buffers.used_extents();
  for (unsigned look = 0; look < kLooks && extents != 0 &&
                          climb_.begin_round(now_, memories_.first(kHost).tier->usage().budget);
       ++look) {
    look_for_use(climb_.next(extents));
  }
}

// Uses of mapped extents are not seen, and those of prefetched ones count when they are victims.
void Room::look_for_use(ExtentRef ref) {
  if (!directory_.begun(ref) || !directory_.readable(ref, kHost)) {
    return;
  }
  Extent& extent = directory_.at(ref);
  MemoryLedger& memory = memories_.of(kHost, directory_.frame(kHost, ref));
  const std::uint64_t bytes = directory_.bytes_of(ref);
  if (memory.rank() < extent.preferred && climb_.may(bytes) && move_to_preferred(ref)) {
    climb_.climbed(bytes);
  }
  if (memory.rank() <= extent.preferred || extent.prefetched || directory_.touchable(ref)) {
    return;
  }
  if (directory_.word(kHost, ref).take_referenced()) {
    Copies::recency_for(memory, ref).advised(ref, Advice::touched, 0);
    extent.uses = extent.uses == 0 ? 1 : Climb::kUses;
  }
  if (Climb::wants(extent.uses) && climb_.may(bytes) && move_to_preferred(ref)) {
    climb_.climbed(bytes);
  }
}

// Returns whether something was done.
bool Room::move_to_preferred(ExtentRef ref) {
  if (!directory_.begun(ref) || !directory_.readable(ref, kHost) ||
      !engine_.can_relocate(ref, kHost) || engine_.is_stuck(ref)) {
    return false;
  }
  const unsigned rank = memories_.of(kHost, directory_.frame(kHost, ref)).rank();
  const unsigned preferred = directory_.at(ref).preferred;
  return rank < preferred ? go_down(ref, *memories_.in(kHost)[preferred]) : climb(ref, rank);
}

// Moves the extent to a slower memory if that has room beyond what it keeps for victims. An extent
// that may stay where it is displaces no other.
bool Room::go_down(ExtentRef ref, MemoryLedger& to) {
  const std::uint64_t bytes = directory_.bytes_of(ref);
  const FrameUsage usage = to.tier->usage();
  if (!may_receive(to, bytes) || !engine_.takes_extent(to, ref) ||
      usage.in_use + bytes + to.ahead > usage.budget) {
    return false;
  }
  const FrameId frame = to.take_frame(directory_.frame_request(ref, kHost));
  if (!frame.valid()) {
    return false;
  }
  if (!engine_.start_climb(ref, kHost, frame)) {
    to.give_frame(frame, bytes);
    return false;
  }
  return true;
}

// Moves the extent to the memory that it prefers, else to the lowest rank above it. If a memory has
// no room, room is made: its coldest extents sink for one that is used, which climbs in a later
// round.
bool Room::climb(ExtentRef ref, unsigned rank) {
  const std::uint64_t bytes = directory_.bytes_of(ref);
  const unsigned preferred = directory_.at(ref).preferred;
  for (MemoryLedger* const memory : memories_.in(kHost).subspan(preferred, rank - preferred)) {
    if (!may_receive(*memory, bytes) || !engine_.takes_extent(*memory, ref)) {
      continue;
    }
    const FrameId frame = memory->take_frame(directory_.frame_request(ref, kHost));
    if (!frame.valid()) {
      const std::uint64_t before = memory->freeing;
      make_room(*memory, before + memory->tier->usage().leaving + bytes, Priority::background);
      return memory->freeing != before;
    }
    if (engine_.start_climb(ref, kHost, frame)) {
      return true;
    }
    memory->give_frame(frame, bytes);
    return false;
  }
  return false;
}

void Room::wish_climb(ExtentRef ref) {
  constexpr std::size_t kMostWishes = 1024;
  if (memories_.in(kHost).size() > 1 && wishes_.size() < kMostWishes) {
    wishes_.push_back(ref);
  }
}

}  // namespace tiermem

// Room for pages of partial extents: which pages a need lacks, and the room for them.
// mover/parts.cpp has the transfers. The stepping thread only; never waits.
#include <algorithm>
#include <bit>
#include <span>

#include "mover/page_mask.hpp"
#include "mover/room.hpp"

namespace tiermem {

// Decides which pages to bring for the need. Decides again only if other pages have come since.
void Room::plan(Need& need) {
  Extent& extent = directory_.at(need.ref);
  const bool stands = plan_stands(need) && (need.part == 0 || !has_other_memory_for(need));
  if (need.planned && (need.has_room() || stands)) {
    return;
  }
  need.planned = true;
  need.part = 0;
  const PageMask there = engine_.parts().there(need.ref);
  if (there == 0 && (has_other_memory_for(need) || !engine_.parts().can_begin(need.ref))) {
    return;
  }
  const PageMask all = pages_of(directory_.bytes_of(need.ref));
  if (need.pages == 0) {
    need.part = all & ~there;
    return;
  }
  engine_.parts().note_missed(need.ref, lowest(need.pages));
  need.part = engine_.parts().size().choose(extent.part_size, need.ref, there, lowest(need.pages),
                                            static_cast<unsigned>(std::popcount(all)));
}

// An extent in parts is in the first memory. If that has no room and nothing can leave it, or does
// not take the extent, or if the extent prefers another memory, the whole extent comes to another.
bool Room::has_other_memory_for(const Need& need) const {
  const std::span<const MemoryLedger* const> memories = memories_.in(need.space);
  if (memories.size() == 1 || engine_.parts().there(need.ref) != 0) {
    return false;
  }
  const FrameRequest request = directory_.frame_request(need.ref, need.space);
  const MemoryLedger& first = memories_.first(need.space);
  if (first.tier->takes(request) && preferred(need.ref, need.space) == 0 && !searched(first)) {
    return false;
  }
  return std::any_of(memories.begin() + 1, memories.end(),
                     [&](const MemoryLedger* memory) { return memory->tier->takes(request); });
}

Room::Lack Room::lack_of(Need& need) {
  plan(need);
  if (need.part == 0) {
    return room_of(need.ref, need.space);
  }
  const std::uint64_t bytes = bytes_of_pages(need.part);
  return {.bytes = bytes, .in_parts = bytes, .smallest = bytes};
}

bool Room::take_room(Need& need) {
  if (need.has_room()) {
    return true;
  }
  plan(need);
  if (need.part == 0) {
    need.frame = frame_for(need.ref, need.space);
    return need.frame.valid();
  }
  Extent& extent = directory_.at(need.ref);
  const auto pages = static_cast<unsigned>(std::popcount(need.part));
  if (engine_.parts().there(need.ref) == 0) {
    need.frame = memories_.first(need.space)
                     .tier->acquire_parts(directory_.frame_request(need.ref, need.space), pages);
  } else if (const FrameId frame = directory_.frame(need.space, need.ref);
             !extent.charged && memories_.of(need.space, frame).tier->charge_parts(frame, pages)) {
    need.charged = true;
    extent.charged = true;
  }
  if (need.has_room()) {
    const FrameId frame = need.charged ? directory_.frame(need.space, need.ref) : need.frame;
    evict_ahead(memories_.of(need.space, frame), bytes_of_pages(need.part), true);
  }
  return need.has_room();
}

void Room::give_room(Need& need) {
  if (need.frame.valid()) {
    need.part != 0 ? engine_.copies().give_parts(need.frame, need.space, need.part)
                   : memories_.of(need.space, need.frame)
                         .give_frame(need.frame, directory_.bytes_of(need.ref));
    need.frame = {};
  }
  if (need.charged) {
    const FrameId frame = directory_.frame(need.space, need.ref);
    memories_.of(need.space, frame)
        .tier->discharge_parts(frame, static_cast<unsigned>(std::popcount(need.part)));
    need.charged = false;
    directory_.at(need.ref).charged = false;
  }
  need.planned = false;
}

// The extent is still such that what was planned is what it lacks.
bool Room::plan_stands(const Need& need) const {
  const PageMask there = engine_.parts().there(need.ref);
  if (need.part == 0) {
    return there == 0;
  }
  return (need.part & there) == 0 && (there != 0 || engine_.parts().can_begin(need.ref));
}

// And the room that it has is of the right kind.
bool Room::room_fits(const Need& need) const {
  return plan_stands(need) && need.charged == (engine_.parts().there(need.ref) != 0);
}

}  // namespace tiermem

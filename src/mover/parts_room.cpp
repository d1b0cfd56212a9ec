// Extents in parts, as requests see them: which pages a need lacks, the room for them, and discards
// of some pages. mover/parts.cpp has the transfers. The stepping thread only; never waits.
#include <bit>

#include "mover/mover.hpp"
#include "mover/page_mask.hpp"

namespace tiermem {

// Decides which pages to bring for the need. Decides again only if other pages have come since.
void Mover::plan(Need& need) {
  Extent& extent = directory_.at(need.ref);
  if (need.planned && (need.has_room() || plan_stands(need))) {
    return;
  }
  need.planned = true;
  need.part = 0;
  const PageMask there = engine_.parts_there(need.ref);
  if (there == 0 && (need.pages == 0 || !engine_.can_begin_parts(need.ref))) {
    return;
  }
  const PageMask all = pages_of(directory_.bytes_of(need.ref));
  if (need.pages == 0) {
    need.part = all & ~there;
    return;
  }
  need.part = engine_.part_size().choose(extent.part_size, need.ref, there, lowest(need.pages),
                                         static_cast<unsigned>(std::popcount(all)));
  if (need.part == all) {
    need.part = 0;
  }
}

std::uint64_t Mover::lacking_bytes(Need& need) {
  plan(need);
  return need.part != 0 ? bytes_of_pages(need.part) : directory_.bytes_of(need.ref);
}

// Room for what the need lacks: a frame, or pages of one. False: not now.
bool Mover::take_room(Need& need) {
  if (need.has_room()) {
    return true;
  }
  plan(need);
  if (need.part == 0) {
    need.frame = take_frame(need.ref, need.space);
    return need.frame.valid();
  }
  AddressableTier& tier = *memories_[need.space].tier;
  Extent& extent = directory_.at(need.ref);
  const auto pages = static_cast<unsigned>(std::popcount(need.part));
  if (engine_.parts_there(need.ref) == 0) {
    need.frame = tier.acquire_parts(directory_.frame_request(need.ref, need.space), pages);
  } else if (!extent.charged && tier.charge_parts(directory_.frame(need.space, need.ref), pages)) {
    need.charged = true;
    extent.charged = true;
  }
  if (need.has_room()) {
    evict_ahead(need.space, bytes_of_pages(need.part), true);
  }
  return need.has_room();
}

// Returns the reserved room. The next reservation is planned anew.
void Mover::give_room(Need& need) {
  if (need.frame.valid()) {
    need.part != 0 ? engine_.give_parts(need.frame, need.space, need.part)
                   : memories_[need.space].give_frame(need.frame, directory_.bytes_of(need.ref));
    need.frame = {};
  }
  if (need.charged) {
    memories_[need.space].tier->discharge_parts(directory_.frame(need.space, need.ref),
                                                static_cast<unsigned>(std::popcount(need.part)));
    need.charged = false;
    directory_.at(need.ref).charged = false;
  }
  need.planned = false;
}

// The extent is still such that what was planned is what it lacks.
bool Mover::plan_stands(const Need& need) {
  const PageMask there = engine_.parts_there(need.ref);
  if (need.part == 0) {
    return there == 0;
  }
  return (need.part & there) == 0 && (there != 0 || engine_.can_begin_parts(need.ref));
}

// And the room that it has is of the right kind.
bool Mover::room_fits(const Need& need) {
  return plan_stands(need) && need.charged == (engine_.parts_there(need.ref) != 0);
}

// Those of the i-th extent; 0: not by the page.
PageMask Mover::pages_discarded(const Span& span, std::uint32_t i) const {
  const Span::Bytes bytes = span.covered(i);
  if (!engine_.takes_parts(span.first + i) || bytes.begin % kSmallestExtent != 0 ||
      bytes.end % kSmallestExtent != 0) {
    return 0;
  }
  const std::uint64_t first = bytes.begin % directory_.bytes_of(span.first + i) / kSmallestExtent;
  return pages_of(bytes.end - bytes.begin) << first;
}

// The pages read as zeros from now on, without I/O, and the slot's bytes for them are void. If the
// extent is in memory as a whole, the caller overwrites them instead. The extent has no transfer.
Mover::Arm Mover::empty_pages(Request& request, Need& need) {
  const ExtentRef ref = need.ref;
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(kHost, ref);
  if (extent.charged) {
    return Arm::wait_pins;  // More of it is about to come.
  }
  const bool in_slot = word.load().phase() == Phase::none && extent.has_slot &&
                       !extent.slot_stale && extent.sums != nullptr;
  const PageMask there = extent.parts & need.pages;
  if ((!in_slot && word.load().phase() != Phase::zero) || (there != 0 && need.tried)) {
    return Arm::ready;
  }
  if (there != 0) {
    // Set now: the first request after they have gone must not bring the slot's older bytes.
    extent.zeros |= there;
    need.tried = true;
    there == extent.parts ? (void)engine_.leave(ref, kHost, true) : engine_.start_empty(ref, there);
    return Arm::wait_transfer;
  }
  if (in_slot) {
    extent.zeros |= need.pages;
    if (extent.parts == 0 &&
        (~engine_.zero_pages(extent) & pages_of(directory_.bytes_of(ref))) == 0) {
      engine_.drop_slot(ref);
      word.set_phase(Phase::zero);
    }
  }
  for (Span& span : request.spans) {
    for (const std::uint32_t i : {0u, span.count - 1}) {
      if (span.first + i == ref && !span.whole(i) && pages_discarded(span, i) != 0) {
        span.set_emptied(i);
      }
    }
  }
  return Arm::ready;
}

void Mover::restore_bounce() {
  const std::uint64_t bytes = engine_.bounce().restore(budget_request_ != nullptr);
  if (bytes != 0) {
    make_room(kHost, bytes, Priority::room);
  }
}

}  // namespace tiermem

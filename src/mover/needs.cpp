// Needs: what a request's ranges mean for each extent, and what each still lacks. The stepping
// thread only; never waits.
#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

void Mover::build_needs(Request& request) {
  if (request.want == Want::free) {
    const BufferRecord& record = residency_.buffers.at(request.index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const std::uint32_t count = record.extents.load(std::memory_order_relaxed);
    directory_.each_begun(first, first + count,
                          [&](ExtentRef ref) { request.needs.push_back({.ref = ref}); });
    return;
  }
  if (stale_span(request) != nullptr) {
    return;  // Its extents may be another buffer's.
  }
  if (request.want == Want::gather) {
    build_gather_needs(request);
    return;
  }
  for (const Span& span : request.spans) {
    // An extent that has not begun has no bytes that could leave, and none that a prefetch brings;
    // unless they are in a file, or a touch would wait for its zeros.
    const bool comes = request.want == Want::acquire ||
                       (request.want == Want::prefetch &&
                        (span.record->file != 0 ||
                         (span.record->flags.load(std::memory_order_relaxed) & kMapped) != 0));
    for (std::uint32_t i = 0; comes && i < span.count; ++i) {
      directory_.begin(span, span.first + i);
    }
    directory_.each_begun(span.first, span.first + span.count,
                          [&](ExtentRef ref) { add_need(request, span, ref - span.first); });
  }
  // Two spans may name the same extent: one need then, with what both of them want.
  const auto key = [](const Need& n) { return std::pair(n.space, n.ref); };
  const auto less = [&](const Need& a, const Need& b) { return key(a) < key(b); };
  if (!std::is_sorted(request.needs.begin(), request.needs.end(), less)) {
    std::sort(request.needs.begin(), request.needs.end(), less);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < request.needs.size(); ++i) {
    if (kept > 0 && key(request.needs[kept - 1]) == key(request.needs[i])) {
      Need& same = request.needs[kept - 1];
      same.writes = same.writes || request.needs[i].writes;
      same.changes = same.changes || request.needs[i].changes;
      same.shown = same.shown || request.needs[i].shown;
      same.discard = same.discard && request.needs[i].discard;
      const bool pages = request.want == Want::discard && request.needs[i].pages != 0;
      same.pages = pages && same.pages != 0 ? same.pages | request.needs[i].pages : 0;
    } else {
      request.needs[kept++] = request.needs[i];
    }
  }
  request.needs.resize(kept);
}

void Mover::add_need(Request& request, const Span& span, std::uint32_t i) {
  const bool whole = span.discards && span.whole(i);
  Need need{.ref = span.first + i, .space = span.space};
  if (request.want == Want::discard && !whole) {
    need.pages = span.emptied(i) ? 0 : pages_discarded(span, i);
    if (need.pages == 0) {
      return;  // The edges keep their bytes.
    }
  }
  need.writes = span.writes;
  need.discard = whole;
  if (request.in_parts && directory_.pages_in(need.ref) <= kMostParts) {
    need.pages = PageMask{1} << request.page;
  }
  need.changes = request.changes;
  need.shown = span.window != nullptr;
  request.needs.push_back(need);
}

void Mover::activate(Request& request) {
  request.state = Request::State::loading;
  request.armed = 0;
  request.pending = 0;
  arm_more(request);
}

// In pieces, so that a request of a million extents does not hold up a step.
void Mover::arm_more(Request& request) {
  const std::uint64_t until = work_ + 512;
  while (request.armed < request.needs.size() && work_ < until) {
    ++work_;
    const std::uint32_t index = request.armed++;
    arm(request, index);
    if (request.state == Request::State::done) {
      return;
    }
  }
  if (request.armed < request.needs.size()) {
    arming_.push_back(&request);
    return;
  }
  maybe_finish(request);
}

// Looks at one need and starts what it lacks. Counts it as pending unless it is ready.
void Mover::arm(Request& request, std::uint32_t index) {
  Need& need = request.needs[index];
  const bool comes = request.want == Want::acquire || request.want == Want::prefetch;
  if (resting_ && !(comes && ready(need))) {
    ++request.pending;
    need.waiting = true;
    wait_for_pins(request, index);  // Looked at again after the fork.
    return;
  }
  Arm result = Arm::ready;
  if (comes) {
    result = arm_acquire(request, need);
  } else if (request.want == Want::gather) {
    result = arm_gather(request, need);
  } else if (request.want == Want::retreat) {
    result = arm_retreat(request, need);
    if (result == Arm::ready) {
      note_left(request, need);
    }
  } else {
    result = arm_leave(request, need);
  }
  if (request.state == Request::State::done || result == Arm::ready) {
    return;
  }
  ++request.pending;
  need.waiting = true;
  if (result == Arm::wait_transfer) {
    wait_for(request, index, need.ref);
  } else if (result == Arm::wait_pins) {
    wait_for_pins(request, index);
  } else {
    prefetch_queue_.emplace_back(&request, index);
  }
}

bool Mover::ready(const Need& need) const {
  const ExtentBits bits = directory_.word(need.space, need.ref).load();
  if (need.pages != 0 && bits.phase() == Phase::none) {
    return (need.pages & ~directory_.at(need.ref).parts) == 0;
  }
  return (need.writes ? bits.view_writable() : bits.view_readable()) &&
         (!need.shown || shown(need, directory_.frame(need.space, need.ref)));
}

bool Mover::shown(const Need& need, FrameId frame) const {
  return memories_[need.space].tier->shows(frame,
                                           directory_.address_in_window(need.ref, need.space));
}

// Returns whether a prefetch would bring no bytes. Zeros of a mapped extent are prefetched, because
// a touch would wait for them.
bool Mover::nothing_to_read(const Need& need) const {
  const Phase host = directory_.word(kHost, need.ref).load().phase();
  const Phase phase = directory_.word(need.space, need.ref).load().phase();
  const bool zeros =
      phase == Phase::zero && directory_.readable_elsewhere(need.ref, need.space) == kNoSpace;
  // A prefetch brings the zeros of a mapped extent, but not where the program has mapped something.
  const bool ahead = directory_.mapped(need.ref) &&
                     !memories_[kHost].tier->lent(directory_.window_at(need.ref, kHost),
                                                  directory_.bytes_of(need.ref));
  return (zeros && !ahead) || host == Phase::lost || host == Phase::vacant ||
         directory_.claimed(need.ref, need.space);
}

// Returns whether the bytes are only in a slot, a file or another space, and no prefetch brings
// them. An extent that is leaving its window comes back without a read.
bool Mover::must_come(ExtentRef ref, unsigned space, PageMask pages) const {
  const Extent& extent = directory_.at(ref);
  if (directory_.readable(ref, space)) {
    return false;
  }
  if (const Transfer* const transfer = engine_.transfer_of(ref);
      transfer != nullptr && transfer->space == space) {
    const bool all = transfer->pages == 0 || (pages != 0 && (pages & ~transfer->pages) == 0);
    if (transfer->kind == Transfer::Kind::demote || (transfer->prefetch && all)) {
      return false;
    }
  }
  return extent.has_slot || directory_.record_of(ref).file != 0 ||
         directory_.readable_elsewhere(ref, space) != kNoSpace;
}

// Returns how many of its bytes a new acquire must wait for.
std::uint64_t Mover::demanded_bytes(const Request& request) const {
  if (request.views == nullptr) {
    const Need& need = request.needs.front();
    const bool zeros = (need.pages & directory_.at(need.ref).zeros) != 0;
    return !zeros && !ready(need) && must_come(need.ref, need.space, need.pages) ? kSmallestExtent
                                                                                 : 0;
  }
  std::uint64_t bytes = 0;
  for (const Span& span : request.spans) {
    const std::uint64_t mask = (std::uint64_t{1} << span.shift) - 1;
    for (std::uint32_t i = 0; i < span.count; ++i) {
      const ExtentRef ref = span.first + i;
      if ((span.discards && span.whole(i)) || !must_come(ref, span.space, 0)) {
        continue;
      }
      const Span::Bytes wanted = span.covered(i);
      const std::uint64_t begin = wanted.begin & mask;
      const std::uint64_t end = begin + (wanted.end - wanted.begin);
      bytes += end - begin;
      const Extent& extent = directory_.at(ref);
      for (PageMask rest = extent.parts | extent.zeros; rest != 0; rest &= rest - 1) {
        const std::uint64_t page = std::countr_zero(rest) * kSmallestExtent;
        const std::uint64_t from = std::clamp(page, begin, end);
        bytes -= std::clamp(page + kSmallestExtent, begin, end) - from;
      }
    }
  }
  return bytes;
}

void Mover::note_touch(const Request& touch, ExtentRef ref) {
  if (const Transfer* const transfer = engine_.transfer_of(ref)) {
    read_ahead_.touched(touch, *transfer);
  }
}

Mover::Arm Mover::arm_acquire(Request& request, Need& need) {
  const bool prefetch = request.want == Want::prefetch;
  const bool here = directory_.word(need.space, need.ref).load().view_readable();
  if (ready(need) || (prefetch && here && !need.shown)) {
    return Arm::ready;
  }
  Extent& extent = directory_.at(need.ref);
  if (extent.transfer != 0) {
    if (lets_in(request, need)) {
      return Arm::ready;
    }
    if (!prefetch) {
      note_touch(request, need.ref);
    }
    // Extents that a request asked to leave are written first: no request waits for a prefetch.
    if (!prefetch || engine_.transfer_of(need.ref)->reason != Reason::asked) {
      engine_.recall(need);
    }
    return Arm::wait_transfer;
  }
  if (need.space != kHost) {
    // Two spaces will know of the bytes. This comes before the checks whether the buffer is spare:
    // a later free finds it booked.
    (void)directory_.word(kHost, need.ref).book();
  }
  const ExtentBits bits = directory_.word(need.space, need.ref).load();
  if (bits.readable()) {
    // Shared, and the request writes: the other spaces' copies must go. They carry the same bytes.
    for (unsigned other = 0; need.writes && other < directory_.spaces(); ++other) {
      if (other != need.space && directory_.readable(need.ref, other) &&
          !engine_.leave(need.ref, other, true)) {
        return extent.transfer != 0 ? Arm::wait_transfer : Arm::wait_pins;
      }
    }
    if (extent.transfer == 0 && !ready(need)) {
      engine_.start_show(need);
    }
    return extent.transfer != 0 ? Arm::wait_transfer : Arm::ready;
  }
  if (!prefetch &&
      (directory_.claimed(need.ref, need.space) || (extent.charged && !need.charged))) {
    return Arm::wait_pins;
  }
  if (prefetch && memories_[need.space].lost) {
    return Arm::ready;
  }
  if (prefetch) {
    const bool full = prefetch_queue_.size() + engine_.prefetches() >= 65536;
    return nothing_to_read(need) || full ? Arm::ready : Arm::queued;
  }
  const unsigned source = directory_.readable_elsewhere(need.ref, need.space);
  if (source != kNoSpace && memories_[source].tier->lost()) {
    if (need.discard || !directory_.word(source, need.ref).load().dirty()) {
      return Arm::wait_pins;  // Until it is let go there.
    }
    extent.lost_with = static_cast<std::uint8_t>(source);
    fail_request(request, no_bytes(need.ref));
    return Arm::ready;
  }
  if (directory_.word(kHost, need.ref).load().phase() == Phase::lost && !need.discard) {
    fail_request(request, no_bytes(need.ref));
    return Arm::ready;
  }
  // Not if it is dirty: then it has been taken into use since, and written.
  if (directory_.word(kHost, need.ref).load().phase() == Phase::vacant &&
      (!engine_.leave(need.ref, kHost, false) || extent.transfer != 0)) {
    return extent.transfer != 0 ? Arm::wait_transfer : Arm::wait_pins;
  }
  if (need.has_room() && !room_fits(need)) {
    give_room(need);
  }
  if (!need.has_room()) {
    // It had a copy when room was reserved and has none now (another request's write took it away).
    const std::uint64_t bytes = lacking_bytes(need);
    if (!take_room(need)) {
      make_room(need.space, bytes, Priority::room);
      (void)take_room(need);  // A clean victim may have left at once.
    }
    Memory& memory = memories_[need.space];
    if (!need.has_room() && !(searched(memory) && take_back_for(need))) {
      if (searched(memory) && nothing_will_change(request)) {
        fail_request(request, no_room(&request, need.space, bytes));
        return Arm::ready;
      }
      note_shortage(need.space, bytes);
      request.short_of_room = true;
      memory.awaited = true;
      seeks_ = seeks_ || (memory.freeing == 0 && !memory.recency.exhausted());
      return Arm::wait_pins;
    }
  }
  // With a copy in another space the bytes come along: giving that copy up first could lose them.
  // Bytes of a mapped extent may not be given up either, because other threads may touch them.
  need.discard = need.discard && directory_.readable_elsewhere(need.ref, need.space) == kNoSpace &&
                 (!directory_.mapped(need.ref) ||
                  directory_.word(kHost, need.ref).load().phase() == Phase::lost);
  if (need.discard) {
    return Arm::ready;  // Last of all: park_discards.
  }
  engine_.start_promote(need, Priority::demand);
  note_touch(request, need.ref);
  return ready(need) || (extent.transfer != 0 && lets_in(request, need)) ? Arm::ready
                                                                         : Arm::wait_transfer;
}

// Returns whether only touches hold the extent, and their pages have come: their requests end with
// this step. Any other holder may wait for a view of the thread that evicts.
bool Mover::touches_end(ExtentRef ref) const {
  std::uint32_t touches = 0;
  for (const Request* request : active_) {
    const bool touch = request->want == Want::acquire && request->views == nullptr &&
                       request->needs.size() == 1 && request->needs[0].ref == ref;
    touches += touch && request->needs[0].held && ready(request->needs[0]) ? 1 : 0;
  }
  return touches == directory_.at(ref).holds;
}

// A pinned copy was not given up. If another copy has gone, so has the slot, and the pinned copy is
// the only one.
void Mover::keep_refused(ExtentRef ref) {
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (!directory_.at(ref).has_slot && directory_.readable(ref, space)) {
      directory_.word(space, ref).set_dirty();
    }
  }
}

// Evict, clean, discard and free: the extent's copies go down or away.
Mover::Arm Mover::arm_leave(Request& request, Need& need) {
  Extent& extent = directory_.at(need.ref);
  if (extent.transfer != 0) {
    return Arm::wait_transfer;
  }
  const bool drop = request.want == Want::free || request.want == Want::discard;
  const Journal::ReasonScope leaving(journal_, drop ? Reason::given_up : Reason::asked);
  if (directory_.claimed(need.ref, kHost)) {
    return Arm::wait_pins;
  }
  if (request.want == Want::discard && need.pages != 0) {
    return empty_pages(request, need);
  }
  if (directory_.word(kHost, need.ref).load().phase() == Phase::vacant) {
    if (request.want == Want::discard || request.want == Want::clean ||
        engine_.leave(need.ref, kHost, false)) {
      return extent.transfer != 0 ? Arm::wait_transfer : Arm::ready;
    }
    return Arm::wait_pins;
  }
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    const ExtentBits bits = directory_.word(space, need.ref).load();
    if (!bits.readable() && extent.parts == 0) {
      continue;
    }
    if (extent.charged) {
      return Arm::wait_pins;  // More of it is about to come.
    }
    if (request.want == Want::clean) {
      if (bits.dirty() && !need.tried &&
          engine_.start_demote(need.ref, space, false, Priority::background)) {
        need.tried = directory_.mapped(need.ref);  // Back in its window it counts as dirty again.
        return Arm::wait_transfer;
      }
      continue;
    }
    if (drop && engine_.leave(need.ref, space, true)) {
      // At once, before another request can bring the slot's older bytes back as the newest.
      engine_.drop_slot(need.ref);
      if (extent.transfer != 0) {
        return Arm::wait_transfer;
      }
      continue;
    }
    if (drop && request.want == Want::free) {
      return Arm::wait_pins;
    }
    if (!drop && need.tried) {
      continue;  // It left, and was touched again.
    }
    if (!drop && extent.holds == 0 && engine_.start_evict(need.ref, space, Priority::demand)) {
      need.tried = directory_.mapped(need.ref);
      if (extent.transfer != 0) {
        return Arm::wait_transfer;
      }
      continue;
    }
    if (!drop && !bits.pinned() && extent.holds != 0 && touches_end(need.ref)) {
      look_again_ = true;
      return Arm::wait_pins;
    }
    if (request.status.ok()) {
      ErrorInfo info = engine_.block_slots().last_error();
      if (bits.pinned() || extent.holds != 0 || info.code == Code::ok) {
        const char* why = bits.pinned()       ? "is pinned by a view"
                          : extent.holds != 0 ? "is wanted by a request or a touch"
                                              : "cannot leave now";
        info = error_info(Code::busy, "an extent of buffer '{}' {}, and stays where it is",
                          directory_.record_of(need.ref).label.get().view(), why);
      }
      request.status = Status(info);
    }
  }
  if (drop && directory_.readable_elsewhere(need.ref, kNoSpace) != kNoSpace) {
    keep_refused(need.ref);
  } else if (drop) {
    engine_.drop_slot(need.ref);
    ExtentWord& host = directory_.word(kHost, need.ref);
    host.clear_dirty();
    if (request.want == Want::discard && host.load().phase() != Phase::zero) {
      host.set_phase(directory_.record_of(need.ref).file != 0 ? Phase::none : Phase::zero);
    }
  }
  return Arm::ready;
}

}  // namespace tiermem

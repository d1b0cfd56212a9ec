// Room: frames for requests, victims, and prefetches. The stepping thread only; never waits.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

bool Mover::lacks_copy(const Need& need) const {
  const Phase phase = directory_.word(need.space, need.ref).load().phase();
  return phase != Phase::shared && phase != Phase::exclusive && phase != Phase::incoming &&
         !directory_.at(need.ref).charged && !engine_.comes_back(need.ref) && !ready(need);
}

FrameId Mover::take_frame(ExtentRef ref, unsigned space) {
  const FrameId frame = memories_[space].take_frame(directory_.frame_request(ref, space));
  if (frame.valid()) {
    evict_ahead(space, directory_.bytes_of(ref));
  }
  return frame;
}

// Frames that victims of other memories took.
void Mover::serve_taken_frames() {
  for (Memory& memory : memories_) {
    if (memory.taken_for_victims != 0) {
      evict_ahead(memory.space, std::exchange(memory.taken_for_victims, 0));
    }
  }
}

// Returns whether the policy has not looked at all extents yet: the next step need not wait for an
// event. After some tens of thousands of looks the request waits for one.
bool Mover::search_goes_on() const {
  if (room_queue_.empty()) {
    return false;
  }
  for (const Memory& memory : memories_) {
    // One step more than counts as fruitless: that one decides whether the request is refused.
    if (memory.freeing == 0 && memory.searching && fruitless_ <= kMostFruitless) {
      return true;
    }
  }
  return room_queue_.front()->last_look;
}

// The oldest request collects frames until it has all that it needs. The others wait behind it.
void Mover::serve_room() {
  for (Memory& memory : memories_) {
    memory.searching = false;
    memory.evicted_at_once = false;
  }
  while (!room_queue_.empty()) {
    Request& head = *room_queue_.front();
    if (!collect(head)) {
      return;
    }
    if (head.state == Request::State::done) {
      continue;  // Failed, and left the queue.
    }
    room_queue_.pop_front();
    activate(head);
  }
}

bool Mover::collect(Request& request) {
  if (std::any_of(request.needs.begin(), request.needs.end(),
                  [&](const Need& need) { return memories_[need.space].awaited; })) {
    return false;
  }
  std::array<std::uint64_t, kMaxSpaces> all{};
  if (!request.collecting) {
    request.collecting = true;
    for (Need& need : request.needs) {
      hold(need);
      all[need.space] += directory_.bytes_of(need.ref);
    }
    for (unsigned space = 0; space < memories_.size(); ++space) {
      const std::uint64_t bounce = space == kHost ? engine_.bounce().bytes() : 0;
      if (all[space] + bounce > memories_[space].tier->books().budget) {
        fail_request(request, no_room(&request, space, all[space]));
        return true;
      }
    }
  }
  std::array<std::uint64_t, kMaxSpaces> missing{};
  const auto take_all = [&] {
    missing = {};
    for (Need& need : request.needs) {
      if (need.has_room() || !lacks_copy(need)) {
        continue;
      }
      if (missing[need.space] == 0) {
        (void)take_room(need);
      }
      if (!need.has_room()) {
        missing[need.space] += lacking_bytes(need);
      }
    }
  };
  take_all();
  bool short_of_room = false;
  for (unsigned space = 0; space < memories_.size(); ++space) {
    if (missing[space] != 0) {
      make_room(space, missing[space], Priority::room, request.last_look);
      short_of_room = true;
    }
  }
  if (!short_of_room) {
    return true;
  }
  take_all();  // Clean victims without a window left at once.
  for (unsigned space = 0; space < memories_.size(); ++space) {
    if (missing[space] == 0) {
      continue;
    }
    request.short_of_room = true;
    note_shortage(space, missing[space]);
    // Bytes that were freed at once may be of no use to this request yet, for example if frames of
    // several sizes share chunks.
    memories_[space].searching = memories_[space].searching || memories_[space].evicted_at_once;
    if (searched(memories_[space]) && nothing_will_change(request)) {
      if (request.last_look) {
        if (drop_from_slots(missing[space])) {
          return false;
        }
        fail_request(request, no_room(&request, space, missing[space]));
        return true;
      }
      // A pin may have fallen between the search and this: search once more, now that there is
      // none.
      request.last_look = true;
      return false;
    }
    request.last_look = false;
    return false;
  }
  return true;
}

// All was looked at, or enough of it, and nothing is on its way.
bool Mover::searched(const Memory& memory) const {
  return memory.freeing == 0 && (memory.recency.exhausted() || fruitless_ >= kMostFruitless);
}

// Finds room for a granted request if there was no victim. It takes back room for copies that have
// come since, then the room that the first request of the queue has collected, and prefetched
// extents last. This finds a frame, because granted requests have reserved their room whole.
bool Mover::take_back_for(Need& need) {
  for (Request* const request : active_) {
    for (Need& theirs : request->needs) {
      if (theirs.space == need.space && theirs.has_room() && ready(theirs)) {
        give_room(theirs);
      }
    }
  }
  if (take_room(need)) {
    return true;
  }
  if (!room_queue_.empty() && room_queue_.front()->collecting) {
    room_queue_.front()->collecting = false;
    let_go(*room_queue_.front());
  }
  make_room(need.space, lacking_bytes(need), Priority::room, true);
  return take_room(need);
}

Recency::Candidate Mover::candidate(ExtentRef ref, Memory& memory) {
  const unsigned space = memory.space;
  Extent& extent = directory_.at(ref);
  ExtentWord& word = directory_.word(space, ref);
  const ExtentBits bits = word.load();
  bool referenced = word.take_referenced();
  const bool ahead = extent.prefetched && space == kHost;
  if (referenced && ahead) {
    referenced =
        false;  // Its first use, however late: the policy counts that one with the insertion.
    engine_.prefetch_used(ref, memory);
  }
  // A prefetched extent waits for its use, unless prefetched bytes would crowd out everything else.
  const bool awaited = ahead && extent.prefetched &&
                       memory.unused_prefetched <= memory.tier->books().budget / 2 && !desperate_;
  // Dirty bytes without another copy can leave only if they can be written down now.
  const bool must_write = bits.dirty() && (engine_.can_write(ref) || !directory_.droppable(ref));
  const bool can_leave = !must_write || directory_.readable_elsewhere(ref, space) != kNoSpace ||
                         (!memory.lost && memory.exit_backoff.over(now_) &&
                          (engine_.can_write(ref) || engine_.may_retreat(ref, space)));
  return {.movable = directory_.has_frame(ref, space) && !bits.pinned() && extent.transfer == 0 &&
                     extent.holds == 0 && can_leave && !awaited && !engine_.is_stuck(ref),
          .referenced = referenced,
          .dirty = must_write,
          .bytes = static_cast<std::uint32_t>(directory_.resident_bytes(ref))};
}

// Evicts until `bytes` and what is kept ahead of need are on their way to be free.
void Mover::make_room(unsigned space, std::uint64_t bytes, Priority priority, bool desperate) {
  Memory& memory = memories_[space];
  const Journal::ReasonScope why(journal_,
                                 priority == Priority::background ? Reason::ahead : Reason::room);
  if (priority != Priority::background) {
    memory.begin_trim(bytes,
                      hands_);  // Otherwise the next frames of their size take the free ones.
  }
  const std::uint64_t goal = bytes + (priority == Priority::background ? 0 : memory.ahead);
  const auto probe = [&](ExtentRef ref) { return candidate(ref, memory); };
  const bool was_desperate = std::exchange(desperate_, desperate);
  // The policy looks at a bounded number of extents a call and goes on where it stopped. Twelve
  // calls a step are enough to find what there is among some thousands; the next step goes on.
  const std::uint64_t before = memory.freeing;
  // Counted in frames given back: the tier's books fall only when a whole chunk of small ones is
  // empty. Those given back before, while a trim was under way, go with the next.
  const std::uint64_t returned = memory.returned;
  const std::uint64_t leaving = memory.tier->books().leaving;
  const std::uint64_t later = priority == Priority::background ? 0 : memory.next_trim();
  const auto freed = [&] { return memory.returned - returned + leaving + later + memory.freeing; };
  // Spares may stay within what is kept ahead of need: both are for the next allocations.
  const std::uint64_t kept = priority == Priority::background ? kKeptSpare : 0;
  while (space == kHost && freed() < goal && residency_.spares.bytes() > kept && reclaim_spare()) {
  }
  for (unsigned call = 0; call < 12 && freed() < goal; ++call) {
    victims_.clear();
    memory.recency.choose(goal - freed(), 64, probe, victims_);
    for (const Recency::Victim& victim : victims_) {
      const bool started = engine_.start_evict(victim.ref, space, priority);
      if (!started && directory_.has_frame(victim.ref, space)) {
        memory.recency.rejected(victim.ref);
      }
    }
    if (memory.recency.exhausted()) {
      break;
    }
  }
  desperate_ = was_desperate;
  memory.evicted_at_once = memory.evicted_at_once || memory.returned != returned;
  memory.searching = priority == Priority::room && memory.freeing == before && freed() < goal &&
                     !memory.recency.exhausted();
}

// Frames are freed ahead of need in proportion to how often requests had to wait for them. A clean
// victim leaves at once: if all are clean, no request waits, and all of the memory is used.
void Mover::evict_ahead(unsigned space, std::uint64_t bytes, bool parts) {
  Memory& memory = memories_[space];
  if (memory.ahead < bytes) {
    memory.ahead = 0;
    return;
  }
  const FrameBooks books = memory.tier->books();
  const std::uint64_t used = parts ? books.used() : books.in_use;
  const std::uint64_t gaps = parts ? 0 : memory.gaps[Memory::size_class(bytes)];
  const std::uint64_t now = books.budget - std::min(books.budget, used) + gaps;
  // Frames that have left come to rest in the cache, which is free memory to parts once trimmed.
  const std::uint64_t free =
      now + memory.freeing + books.leaving + (parts ? memory.next_trim() : 0);
  const std::uint64_t lack = memory.ahead - std::min(memory.ahead, free);
  // In groups: small extents that leave together are written together, with one wake-up.
  constexpr std::uint64_t kGroup = std::uint64_t{1} << 20;
  const std::uint64_t least = memory.ahead - std::min(memory.ahead / 4, kGroup);
  if (now + (parts ? 0 : memory.freeing) < least) {
    memory.begin_trim(parts ? memory.ahead - std::min(memory.ahead, now) : 0, hands_);
  }
  if (free >= least) {
    if (free >= memory.ahead) {
      memory.ahead -= memory.ahead / 64;
    }
    return;
  }
  const std::uint64_t before = memory.freeing;
  make_room(space, before + memory.tier->books().leaving + lack, Priority::background);
  if (memory.freeing == before) {
    memory.ahead -= memory.ahead / 1024;
  }
}

// Gives up a spare buffer, before any buffer in use. Returns false if there is none.
bool Mover::reclaim_spare() {
  const std::uint32_t index = residency_.spares.take_oldest();
  if (index == Spares::kNone) {
    return false;
  }
  const BufferRecord& record = residency_.buffers.at(index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < record.extents.load(std::memory_order_relaxed); ++i) {
    (void)engine_.leave(first + i, kHost, true);
  }
  stock_.give_up(index);
  return true;
}

// Spare buffers take up to an eighth of the memory.
void Mover::limit_spares() {
  residency_.spares.set_limit(memories_[kHost].tier->books().budget / 8);
}

void Mover::serve_prefetch() {
  while (!prefetch_queue_.empty() && room_queue_.empty() &&
         engine_.prefetches() < options_.prefetch_limit) {
    auto [request, index] = prefetch_queue_.front();
    Need& need = request->needs[index];
    Memory& memory = memories_[need.space];
    if (memory.awaited) {
      return;
    }
    const bool wanted =
        directory_.at(need.ref).transfer == 0 && lacks_copy(need) && !nothing_to_read(need);
    // Prefetched and unused extents take up to half of the memory. Further prefetches are dropped.
    const bool allowed =
        memory.unused_prefetched + directory_.bytes_of(need.ref) <= memory.tier->books().budget / 2;
    if (wanted && allowed) {
      hold(need);  // Its resident pages must not make room for the others.
      if (need.has_room() && !room_fits(need)) {
        give_room(need);
      }
      if (!take_room(need)) {
        make_room(need.space, lacking_bytes(need), Priority::prefetch);
        (void)take_room(need);
      }
      unhold(need);
      if (!need.has_room() && memories_[need.space].freeing != 0) {
        note_shortage(need.space, lacking_bytes(need));
        return;  // On its way.
      }
    }
    prefetch_queue_.pop_front();
    need.waiting = false;
    --request->pending;
    if (wanted && need.has_room()) {
      engine_.start_promote(need, Priority::prefetch);
      if (directory_.at(need.ref).transfer != 0) {
        ++request->pending;
        need.waiting = true;
        wait_for(*request, index, need.ref);
      }
    } else if (!wanted) {
      arm(*request, index);
    }
    maybe_finish(*request);
  }
}

// Charges the records of extents to the budget. If memory is full, extents leave first.
void Mover::serve_records() {
  const std::uint64_t bytes = residency_.extents.metadata_bytes();
  const std::uint64_t due = bytes <= kFreeRecords ? 0
                                                  : (bytes - kFreeRecords + kRecordsStep - 1) /
                                                        kRecordsStep * kRecordsStep;
  if (due == records_charged_) {
    return;
  }
  AddressableTier& tier = *memories_[kHost].tier;
  if (!tier.charge_records(due)) {
    make_room(kHost, due - records_charged_, Priority::room);
    return;  // Charged by the step that finds the room.
  }
  records_charged_ = due;
}

void Mover::serve_budget() {
  if (budget_request_ == nullptr) {
    return;
  }
  const AddressableTier& tier = *memories_[budget_space_].tier;
  const FrameBooks books = tier.books();
  if (books.used() > books.budget) {
    engine_.bounce().shrink();
    make_room(budget_space_, books.used() - books.budget, Priority::room);
    const FrameBooks after = tier.books();
    if (after.used() > after.budget) {
      return;
    }
  }
  Request& request = *budget_request_;
  budget_request_ = nullptr;
  engine_.note_budget_change(false);
  complete(request, {});
}

// Drops bytes of droppable buffers from slots that have their only copy, before a request is
// refused because memory and block tier are full. Extents that a request waits for go last. Returns
// whether there were any.
bool Mover::drop_from_slots(std::uint64_t bytes) {
  if (block_ == nullptr || engine_.block_slots().last_error().code != Code::no_capacity) {
    return false;
  }
  std::uint64_t freed = 0;
  for (const bool awaited : {false, true}) {
    for (std::uint32_t i = 0; i < residency_.buffers.used() && freed < bytes; ++i) {
      const BufferRecord& record = residency_.buffers.at(i);
      const bool live = (record.generation.load(std::memory_order_acquire) & 1) != 0;
      if (!live || (record.flags.load(std::memory_order_relaxed) & kDroppable) == 0) {
        continue;
      }
      const ExtentRef first = record.first.load(std::memory_order_relaxed);
      const ExtentRef end = first + record.extents.load(std::memory_order_relaxed);
      directory_.each_begun(first, end, [&](ExtentRef ref) {
        const Extent& extent = directory_.at(ref);
        ExtentWord& host = directory_.word(kHost, ref);
        if (freed >= bytes || !extent.has_slot || extent.parts != 0 || extent.transfer != 0 ||
            (extent.holds != 0) != awaited || host.load().phase() != Phase::none ||
            directory_.readable_elsewhere(ref, kHost) != kNoSpace) {
          return;
        }
        freed += engine_.slot_bytes_of(ref);
        engine_.drop_slot(ref);
        host.set_phase(Phase::lost);
        journal_.count(&Stats::dropped, directory_.bytes_of(ref));
      });
    }
    if (freed != 0) {
      return true;
    }
  }
  return false;
}

void Mover::note_shortage(unsigned space, std::uint64_t bytes) {
  memories_[space].note_shortage(bytes, options_.ahead_bytes_max);
}

// Makes buffers that a program will ask for if it allocates many of this size. They get only frames
// that are free or about to be, because no request waits for them.
void Mover::make_stock(Request& request) {
  if (!stock_.begin_order(request.value, refuses_)) {
    return;
  }
  for (std::uint32_t i = 0; i < request.index && room_queue_.empty(); ++i) {
    const Result<ExtentRef> ref = stock_.create(request.value);
    if (!ref.ok()) {
      break;
    }
    const FrameId frame = find_record(kHost, *ref) ? take_frame(*ref, kHost) : FrameId{};
    if (!frame.valid()) {
      stock_.give_up(directory_.at(*ref).buffer);
      const std::uint64_t rest = (request.index - i) * request.value;
      note_shortage(kHost, rest);
      memories_[kHost].begin_trim(rest, hands_);
      make_room(kHost, rest, Priority::background);
      break;
    }
    stock_.begin(*ref);
    engine_.start_promote(*ref, kHost, frame, Priority::background, nullptr);
  }
  stock_.order_begun(request.value);
}

}  // namespace tiermem

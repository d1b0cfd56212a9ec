#include "mover/room.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

namespace tiermem {

Room::Room(Residency& residency, Memories& memories, Journal& journal, Stock& stock,
           TransferEngine& engine, Workers& workers, std::uint64_t ahead_bytes_max)
    : residency_(residency),
      directory_(residency),
      memories_(memories),
      journal_(journal),
      stock_(stock),
      engine_(engine),
      workers_(workers),
      ahead_bytes_max_(ahead_bytes_max) {}

void Room::note_news(bool news) {
  const bool evicted =
      std::any_of(memories_.begin(), memories_.end(),
                  [](const MemoryLedger& memory) { return memory.evicted_at_once; });
  fruitless_ = went_on_ && !news && !evicted ? fruitless_ + 1 : 0;
}

void Room::end_shortages() {
  for (MemoryLedger& memory : memories_) {
    memory.end_shortage(now_);
  }
}

// Extents that some memory does not take must fit in the others, beside those that are bound there.
// The bounce memory is in the first one.
bool Room::ever_fits(unsigned space, const Lack& all) const {
  const std::uint64_t bounce = space == kHost ? engine_.bounce().bytes() : 0;
  const std::uint64_t bound = std::accumulate(all.bound.begin(), all.bound.end(), std::uint64_t{0});
  std::uint64_t budget = 0, for_all = 0, barred = 0;
  for (const MemoryLedger* const memory : memories_.in(space)) {
    const unsigned rank = memory->rank();
    const std::uint64_t its = memory->tier->usage().budget;
    const std::uint64_t taken = all.bound[rank] + (rank == 0 ? bounce : 0);
    if (all.bound[rank] != 0 && taken > its) {
      return false;
    }
    const std::uint64_t unbound = all.barred[rank] - (bound - all.bound[rank]);
    budget += its;
    for_all += unbound == 0 ? its - std::min(its, taken) : 0;
    barred = std::max(barred, unbound);
  }
  return all.bytes + bounce <= budget && (barred == 0 || barred <= for_all);
}

Room::Lack Room::room_of(ExtentRef ref, unsigned space) const {
  const std::uint64_t bytes = directory_.bytes_of(ref);
  Lack lack{.bytes = bytes, .smallest = bytes};
  const std::span<const MemoryLedger* const> memories = memories_.in(space);
  if (memories.size() == 1) {
    return lack;
  }
  lack.preferring[preferred(ref, space)] = bytes;
  const FrameRequest request = directory_.frame_request(ref, space);
  for (const MemoryLedger* const memory : memories) {
    lack.barred[memory->rank()] = memory->tier->takes(request) ? 0 : bytes;
  }
  if (request.only != kMostMemories) {
    lack.bound[request.only] = bytes;
  }
  return lack;
}

bool Room::is_barred(ExtentRef ref, unsigned space) const {
  const std::span<const MemoryLedger* const> memories = memories_.in(space);
  if (memories.size() == 1) {
    return false;
  }
  const FrameRequest request = directory_.frame_request(ref, space);
  return std::any_of(memories.begin(), memories.end(),
                     [&](const MemoryLedger* memory) { return !memory->tier->takes(request); });
}

// Returns the rank of the memory of the space that comes first for the extent. Only the host has
// several.
unsigned Room::preferred(ExtentRef ref, unsigned space) const {
  const unsigned rank = space == kHost ? directory_.at(ref).preferred : 0u;
  return rank != 0 && memories_.in(space)[rank]->tier->takes(directory_.frame_request(ref, space))
             ? rank
             : 0;
}

// The preferred memory gives the frame if it has room, or else the memory of the lowest rank that
// has.
FrameId Room::frame_for(ExtentRef ref, unsigned space) {
  const std::span<MemoryLedger* const> memories = memories_.in(space);
  const bool some_closed = memories.size() > 1 && memories_.any_open(space, now_);
  for (unsigned position = 0; position < memories.size(); ++position) {
    MemoryLedger& memory = *memories[Placement::in_order(position, preferred(ref, space))];
    if ((some_closed && !engine_.takes_extents(memory)) || keeps_its_room(memory, ref)) {
      continue;
    }
    if (const FrameId frame = frame_in(memory, ref); frame.valid()) {
      return frame;
    }
  }
  return {};
}

// A memory that the extent does not prefer keeps what it has free ahead of need: a slower one for
// victims of the faster ones, and the first one for extents that prefer it. Each promote then finds
// its room in the preferred memory. If nothing there can leave, the room is taken.
bool Room::keeps_its_room(const MemoryLedger& memory, ExtentRef ref) const {
  const unsigned wanted = preferred(ref, memory.space);
  if (memory.rank() == wanted || memory.ahead == 0) {
    return false;
  }
  const std::uint64_t bytes = directory_.bytes_of(ref);
  const MemoryLedger& first = *memories_.in(memory.space)[wanted];
  const FrameUsage usage = memory.tier->usage();
  return may_receive(first, bytes) && !searched(first) &&
         usage.in_use + bytes + memory.ahead > usage.budget;
}

FrameId Room::frame_in(MemoryLedger& memory, ExtentRef ref) {
  const FrameId frame = memory.take_frame(directory_.frame_request(ref, memory.space));
  if (frame.valid()) {
    evict_ahead(memory, directory_.bytes_of(ref));
  }
  return frame;
}

std::uint64_t Room::unused_prefetched(unsigned space) const {
  std::uint64_t bytes = 0;
  for (const MemoryLedger* const memory : memories_.in(space)) {
    bytes += memory->unused_prefetched;
  }
  return bytes;
}

// Frames that victims of other memories took.
void Room::serve_taken_frames() {
  for (MemoryLedger& memory : memories_) {
    if (memory.taken_for_victims != 0) {
      evict_ahead(memory, std::exchange(memory.taken_for_victims, 0));
    }
  }
}

void Room::note_shortage(unsigned space, const Lack& lack) {
  std::uint64_t others = lack.bytes;
  for (unsigned rank = 1; rank < memories_.in(space).size(); ++rank) {
    if (const std::uint64_t bytes = lack.preferring[rank]; bytes != 0) {
      memory_for(space, lack, bytes, rank).note_shortage(bytes, ahead_bytes_max_);
      others -= bytes;
    }
  }
  if (others != 0) {
    memory_for(space, lack, others).note_shortage(others, ahead_bytes_max_);
  }
}

void Room::begin_search() {
  for (MemoryLedger& memory : memories_) {
    memory.searching = false;
    memory.evicted_at_once = false;
  }
}

// Returns whether the policy has not looked at all extents yet: the next step need not wait for an
// event. After some tens of thousands of looks the request waits for one.
bool Room::goes_on_for(const Request& head) const {
  for (const MemoryLedger& memory : memories_) {
    // One step more than counts as fruitless: that one decides whether the request is refused.
    if (memory.freeing == 0 && memory.searching && fruitless_ <= kMostFruitless) {
      return true;
    }
  }
  return head.last_look;
}

void Room::end_step(const Request* head, bool seeks) {
  went_on_ = (head != nullptr && goes_on_for(*head)) || (seeks && fruitless_ <= kMostFruitless);
}

// Where frames share chunks, victims that left at once may be of no use yet: the search goes on.
bool Room::searched(unsigned space, const Lack& lack) const {
  const auto is_searched = [this](const MemoryLedger& memory) {
    return searched(memory) && !memory.evicted_at_once;
  };
  if (lack.in_parts != 0) {
    return is_searched(memories_.first(space));
  }
  for (const MemoryLedger* const memory : memories_.in(space)) {
    if (lack.open_to(memory->rank()) != 0 && may_receive(*memory, lack.smallest) &&
        !is_searched(*memory)) {
      return false;
    }
  }
  return true;
}

bool Room::seeks(unsigned space) const {
  const auto memories = memories_.in(space);
  return std::any_of(memories.begin(), memories.end(), [](const MemoryLedger* memory) {
    return memory->freeing == 0 && !memory->recency.exhausted();
  });
}

bool Room::searched(const MemoryLedger& memory) const {
  return memory.freeing == 0 && (memory.recency.exhausted() || fruitless_ >= kMostFruitless);
}

Recency::Candidate Room::candidate(ExtentRef ref, MemoryLedger& memory) {
  const unsigned space = memory.space;
  Extent& extent = directory_.at(ref);
  bool referenced = directory_.word(space, ref).take_referenced();
  const bool ahead = extent.prefetched && space == kHost;
  if (extent.uses != 0 && referenced && memory.rank() == preferred(ref, space)) {
    extent.uses = 0;
    climb_.was_used();
  }
  if (referenced && ahead) {
    referenced =
        false;  // Its first use, however late: the policy counts that one with the insertion.
    engine_.copies().prefetch_used(ref);
  }
  // A prefetched extent waits for its use, unless prefetched bytes would crowd out everything else.
  const bool awaited = ahead && extent.prefetched &&
                       memory.unused_prefetched <= memory.tier->usage().budget / 2 && !desperate_;
  // An extent that stays for its use keeps its bias.
  const ExtentBits bits =
      referenced ? directory_.word(space, ref).load() : directory_.bits(space, ref);
  const bool pinned = referenced ? bits.counted_pins() : bits.pinned();
  // Dirty bytes without another copy can leave only if they can be written down now.
  const Placement::Victim victim = engine_.as_victim(ref, space, bits);
  return {.movable = directory_.has_frame(ref, space) && !pinned && extent.transfer == 0 &&
                     extent.holds == 0 && Placement::can_leave(victim) && !awaited &&
                     !engine_.is_stuck(ref),
          .referenced = referenced,
          .dirty = Placement::must_move(victim),
          .bytes = static_cast<std::uint32_t>(leaving_bytes(ref))};
}

// Returns the bytes that leave at the extent's turn. If all stay for this time, it uses up a turn.
std::uint64_t Room::leaving_bytes(ExtentRef ref) const {
  const PageMask pages = engine_.parts().leaving(ref);
  return pages != 0 ? bytes_of_pages(pages) : directory_.resident_bytes(ref);
}

// Ages what was inserted, also while memory fills: early reuse is seen that way.
void Room::settle() {
  for (MemoryLedger& memory : memories_) {
    memory.recency.settle([&](ExtentRef ref) { return candidate(ref, memory); });
  }
}

// Room is made in the memory that the extents prefer, else in that of the lowest rank that can have
// them. The next one makes room for the rest, if that one is too small or nothing in it can leave.
void Room::make_room(unsigned space, const Lack& lack, Priority priority, bool desperate) {
  const std::span<MemoryLedger* const> memories = memories_.in(space);
  if (memories.size() == 1) {
    make_room(*memories.front(), lack.bytes, priority, desperate);
    return;
  }
  if (lack.in_parts != 0) {
    make_room(*memories.front(), lack.in_parts, priority, desperate);
    return;  // The others follow when these have their room.
  }
  std::uint64_t bytes = lack.bytes;
  std::array<std::uint64_t, kMostMemories> made{};  // By rank, for those that prefer the memory.
  const auto make_in = [&](MemoryLedger& memory, std::uint64_t wanted) -> std::uint64_t {
    const std::uint64_t before = made[memory.rank()];
    const std::uint64_t budget = memory.tier->usage().budget;
    const std::uint64_t share =
        std::min({wanted, budget - std::min(budget, before), lack.open_to(memory.rank()) - before});
    if (share == 0 || !may_receive(memory, lack.smallest)) {
      return 0;
    }
    // The room of the first call is on its way, so the second one names the sum.
    make_room(memory, before + share, priority, desperate);
    return searched(memory) ? 0 : share;
  };
  for (unsigned rank = 1; rank < memories.size(); ++rank) {
    made[rank] = make_in(*memories[rank], lack.preferring[rank]);
    bytes -= made[rank];
  }
  for (MemoryLedger* const memory : memories) {
    bytes -= make_in(*memory, bytes);
  }
}

Placement::Pressure Room::pressure_of(const MemoryLedger& memory) const {
  const FrameUsage usage = memory.tier->usage();
  return {.budget = usage.budget,
          .in_use = usage.in_use,
          .closed = !engine_.takes_extents(memory) && memories_.any_open(memory.space, now_),
          .stuck = searched(memory)};
}

// Returns whether an extent of this size can ever have a frame in the memory.
bool Room::may_receive(const MemoryLedger& memory, std::uint64_t extent_bytes) const {
  return memories_.in(memory.space).size() == 1 || pressure_of(memory).can_have(extent_bytes);
}

// Returns the memory that is short of room for extents that prefer the memory of this rank.
MemoryLedger& Room::memory_for(unsigned space, const Lack& lack, std::uint64_t bytes,
                               unsigned preferred) {
  std::array<Placement::Pressure, kMostMemories> pressures;
  const std::span<MemoryLedger* const> memories = memories_.in(space);
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    pressures[rank] = pressure_of(*memories[rank]);
    pressures[rank].closed =
        pressures[rank].closed || lack.open_to(static_cast<unsigned>(rank)) == 0;
  }
  const unsigned rank = Placement::memory(bytes, {pressures.data(), memories.size()}, preferred);
  return rank != Placement::kNone ? *memories[rank] : memories_.first(space);
}

void Room::make_room(MemoryLedger& memory, std::uint64_t bytes, Priority priority, bool desperate) {
  const unsigned space = memory.space;
  const Journal::ReasonScope why(journal_,
                                 priority == Priority::background ? Reason::ahead : Reason::room);
  if (priority != Priority::background) {
    memory.begin_trim(bytes,
                      workers_);  // Otherwise the next frames of their size take the free ones.
  }
  const std::uint64_t goal = bytes + (priority == Priority::background ? 0 : memory.ahead);
  const auto probe = [&](ExtentRef ref) { return candidate(ref, memory); };
  const bool was_desperate = std::exchange(desperate_, desperate);
  // The policy looks at a bounded number of extents a call and goes on where it stopped. Twelve
  // calls a step are enough to find what there is among some thousands; the next step goes on. In
  // the last ones pages do not stay for their turns, so that each step makes some room.
  constexpr unsigned kCalls = 12, kByLevel = 8;
  const std::uint64_t before = memory.freeing;
  // Counted in frames given back: the tier's usage falls only when a whole chunk of small ones is
  // empty. Those given back before, while a trim was under way, go with the next.
  const std::uint64_t returned = memory.returned;
  const std::uint64_t leaving = memory.tier->usage().leaving;
  const std::uint64_t later = priority == Priority::background ? 0 : memory.next_trim();
  const auto freed = [&] { return memory.returned - returned + leaving + later + memory.freeing; };
  // Spares may stay within what is kept ahead of need: both are for the next allocations.
  const std::uint64_t kept = priority == Priority::background ? kKeptSpare : 0;
  while (space == kHost && freed() < goal && residency_.spares.bytes() > kept && reclaim_spare()) {
  }
  for (unsigned call = 0; call < kCalls && freed() < goal; ++call) {
    const auto leaves = !desperate && call < kByLevel ? TransferEngine::Leaves::by_level
                                                      : TransferEngine::Leaves::all;
    victims_.clear();
    memory.recency.choose(goal - freed(), 64, probe, victims_);
    for (const Recency::Victim& victim : victims_) {
      const bool started = engine_.start_evict(victim.ref, space, priority, leaves);
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
void Room::evict_ahead(MemoryLedger& memory, std::uint64_t bytes, bool parts) {
  if (memory.ahead < bytes) {
    memory.ahead = 0;
    return;
  }
  const FrameUsage usage = memory.tier->usage();
  const std::uint64_t used = parts ? usage.used() : usage.in_use;
  const std::uint64_t gaps = parts ? 0 : memory.gaps[MemoryLedger::size_class(bytes)];
  const std::uint64_t now = usage.budget - std::min(usage.budget, used) + gaps;
  // Frames that have left come to rest in the cache, which is free memory to parts once trimmed.
  const std::uint64_t free =
      now + memory.freeing + usage.leaving + (parts ? memory.next_trim() : 0);
  const std::uint64_t lack = memory.ahead - std::min(memory.ahead, free);
  // In groups: small extents that leave together are written together, with one wake-up.
  constexpr std::uint64_t kGroup = std::uint64_t{1} << 20;
  const std::uint64_t least = memory.ahead - std::min(memory.ahead / 4, kGroup);
  if (now + (parts ? 0 : memory.freeing) < least) {
    memory.begin_trim(parts ? memory.ahead - std::min(memory.ahead, now) : 0, workers_);
  }
  if (free >= least) {
    if (free >= memory.ahead) {
      memory.ahead -= memory.ahead / 64;
    }
    return;
  }
  const std::uint64_t before = memory.freeing;
  make_room(memory, before + memory.tier->usage().leaving + lack, Priority::background);
  if (memory.freeing == before) {
    memory.ahead -= memory.ahead / 1024;
  }
}

// Gives up a spare buffer, before any buffer in use. Returns false if there is none.
bool Room::reclaim_spare() {
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
void Room::limit_spares() {
  residency_.spares.set_limit(memories_.first(kHost).tier->usage().budget / 8);
}

void Room::restore_bounce() {
  const std::uint64_t bytes = engine_.bounce().restore();
  if (bytes != 0) {
    make_room(memories_.first(kHost), bytes, Priority::room);
  }
}

void Room::serve_records() {
  const std::uint64_t bytes = residency_.extents.metadata_bytes();
  const std::uint64_t due = bytes <= kFreeRecords ? 0
                                                  : (bytes - kFreeRecords + kRecordsStep - 1) /
                                                        kRecordsStep * kRecordsStep;
  if (due == records_charged_) {
    return;
  }
  MemoryLedger& first = memories_.first(kHost);
  if (!first.tier->charge_records(due)) {
    make_room(first, due - records_charged_, Priority::room);
    return;  // Charged by the step that finds the room.
  }
  records_charged_ = due;
}

void Room::begin_budget_change(MemoryLedger& memory, std::uint64_t bytes) {
  budget_memory_ = memory.index;
  budget_before_ = memory.short_until != 0 ? memory.whole_budget : memory.tier->usage().budget;
  memory.short_until = 0;
  memory.tier->set_budget(bytes);
  limit_spares();
  note_budget_change(true);
}

void Room::undo_budget_change() {
  MemoryLedger& memory = memories_.at(budget_memory_);
  memory.tier->set_budget(budget_before_);
  memory.short_until = 0;  // Its budget to go back to would be the refused one.
  limit_spares();
  note_budget_change(false);
}

void Room::note_budget_change(bool on) {
  budget_changes_ = on;
  engine_.bounce().note_budget_change(on);
}

bool Room::serve_budget_change() {
  if (!budget_changes_) {
    return false;
  }
  MemoryLedger& memory = memories_.at(budget_memory_);
  const Memory& tier = *memory.tier;
  const FrameUsage usage = tier.usage();
  if (usage.used() > usage.budget) {
    engine_.bounce().shrink();
    make_room(memory, usage.used() - usage.budget, Priority::room);
    const FrameUsage after = tier.usage();
    if (after.used() > after.budget) {
      return false;
    }
  }
  note_budget_change(false);
  return true;
}

// Drops bytes of droppable buffers from slots that have their only copy, before a request is
// refused because memory and block tier are full. Extents that a request waits for go last. Returns
// whether there were any.
bool Room::drop_from_slots(std::uint64_t bytes) {
  if (!engine_.slots().full()) {
    return false;
  }
  return engine_.copies().drop_from_slots(bytes, false) != 0 ||
         engine_.copies().drop_from_slots(bytes, true) != 0;
}

// Without memory for its record in the policy an extent would never be a victim, so it must not
// come.
bool Room::find_record(unsigned space, ExtentRef ref) {
  const std::span<MemoryLedger* const> memories = memories_.in(space);
  return std::all_of(memories.begin(), memories.end(), [&](MemoryLedger* memory) {
    Recency& recency = memory->recency;
    return ref < recency.capacity() || recency.reserve(std::size_t{ref} + 1).ok();
  });
}

// Makes buffers that a program will ask for if it allocates many of this size. They get only frames
// that are free or about to be, because no request waits for them.
void Room::make_stock(std::uint64_t bytes, std::uint32_t count, bool refused) {
  if (!stock_.begin_order(bytes, refused)) {
    return;
  }
  MemoryLedger& first = memories_.first(kHost);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Result<ExtentRef> ref = stock_.create(bytes);
    if (!ref.ok()) {
      break;
    }
    const FrameId frame = find_record(kHost, *ref) ? frame_in(first, *ref) : FrameId{};
    if (!frame.valid()) {
      stock_.give_up(directory_.at(*ref).buffer);
      const std::uint64_t rest = (count - i) * bytes;
      first.note_shortage(rest, ahead_bytes_max_);
      first.begin_trim(rest, workers_);
      make_room(first, rest, Priority::background);
      break;
    }
    stock_.begin(*ref);
    engine_.start_promote(*ref, kHost, frame, Priority::background, nullptr);
  }
  stock_.order_begun(bytes);
}

// Requests that wait for room look again when something that could not leave may be able to.
std::int64_t Room::next(bool waits) const {
  if (went_on_ || stock_.any_given_up()) {
    return now_;
  }
  std::int64_t next = kNever;
  const auto wake_at = [&](std::int64_t at) { next = at > now_ ? std::min(next, at) : next; };
  if (waits || budget_changes_) {
    wake_at(engine_.next_for_room());
  }
  for (const MemoryLedger& memory : memories_) {
    wake_at(waits || budget_changes_ ? memory.exit_backoff.until() : 0);
    wake_at(waits || budget_changes_ ? memory.entry_backoff.until() : 0);
    wake_at(waits ? memory.short_until : 0);
  }
  return next;
}

}  // namespace tiermem

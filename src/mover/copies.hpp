// Copies and slots of extents: what changes when a copy has gone, and when a slot is given up. The
// families of transfers call it at their ends, and the mover for extents without transfers. The
// stepping thread only; never waits.
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>

#include "base/arena.hpp"
#include "mover/bounce.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stuck.hpp"
#include "policy/placement.hpp"
#include "policy/slot_order.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Copies {
 public:
  Copies(Residency& residency, Memories& memories, Journal& journal, Bounce& bounce,
         SlotTiers& slots, Stuck& stuck)
      : residency_(residency),
        directory_(residency),
        memories_(memories),
        journal_(journal),
        bounce_(bounce),
        slots_(slots),
        stuck_(stuck) {
    order_.set_most(residency.extents.capacity());
  }

  void begin_step(std::int64_t now) { now_ = now; }

  // ---- Copies

  /// The copy in the space has left its window: its frame is free.
  void finish_evict(ExtentRef ref, unsigned space, FrameId frame, std::int64_t begun_ns);
  /// Some pages of a partial extent have left; others stay. `split`: the frame that has them. Not
  /// valid: they were dropped from the extent's own.
  void finish_part(ExtentRef ref, PageMask pages, FrameId split, std::int64_t begun_ns);
  void settle(ExtentRef ref);
  /// The only copy is lost with the memory.
  void lose(ExtentRef ref, const MemoryLedger& memory);
  /// Returns the lost extents that were not reported yet, by buffer, and forgets them.
  Map<std::uint32_t, std::uint32_t> take_losses() { return std::exchange(losses_, {}); }
  /// A request uses an extent that was prefetched.
  void prefetch_used(ExtentRef ref);
  void give_parts(FrameId frame, unsigned space, PageMask pages);
  /// The extent leaves the memory: it may have climbed there in vain.
  static void note_left(Extent& extent, MemoryLedger& memory) {
    memory.climbs_in_vain += extent.uses != 0 && memory.rank() == extent.preferred ? 1 : 0;
    extent.uses = 0;
  }
  /// The whole extent is in the memory now: it enters the order of victims.
  static void note_came(const Directory& directory, ExtentRef ref, MemoryLedger& memory);
  /// The order of victims, with a record for the extent: the admission of each request that may
  /// bring the extent has made it.
  static Recency& recency_for(MemoryLedger& memory, [[maybe_unused]] ExtentRef ref) {
    assert(ref < memory.recency.capacity());
    return memory.recency;
  }

  // ---- Slots

  /// The extent's bytes in its slot are void.
  void drop_slot(ExtentRef ref);
  /// The extent owns a slot, and has none after this. A child of fork may go on reading it.
  void give_up_slot(ExtentRef ref);
  /// The slot of `from`, and its replica, belong to `to`, which owns none. Call note_in_slot(to)
  /// when the phases are set.
  void move_slot(ExtentRef from, ExtentRef to);
  /// Writes to the tier that were refused for want of slots find some now.
  void room_in_slots(SlotTiers::Entry& tier);
  /// Lets a slot of bytes that are in memory give way, or a replica. Returns false if the tier has
  /// none.
  bool next_slot_gives_way(SlotTiers::Entry& tier);
  /// Lets a slot with a replica in another tier give way. Returns false if the tier has none.
  bool next_replicated_gives_way(SlotTiers::Entry& tier);
  /// Returns the tier that takes the extent's bytes now, or null. `tried`: a bit for each tier that
  /// has refused them.
  SlotTiers::Entry* destination(ExtentRef ref, unsigned tried) const;
  /// There is a tier that takes writes, and those of this extent are not paused; or none is needed.
  bool can_write(ExtentRef ref) const;
  /// Returns whether the extent may leave without a tier that takes writes: it is mapped and still
  /// in its file, and perhaps the program has not written it. Its hash decides.
  bool may_be_as_in_file(ExtentRef ref) const;
  /// Drops `bytes` of droppable extents from slots that have their only copy, in the order in which
  /// they left memory. `awaited`: those that a request waits for, or else the others. Returns the
  /// bytes of the slots.
  std::uint64_t drop_from_slots(std::uint64_t bytes, bool awaited);
  /// The extent may have its only copy in its slot now. It joins the orders of such extents.
  void note_in_slot(ExtentRef ref);

  // ---- Replicas

  /// Returns the extent that is copied to another slot tier next, or kNoExtent.
  ExtentRef next_to_destage(SlotTiers::Entry& tier);
  /// Returns the tier that takes the bytes of slots of this one, or null.
  SlotTiers::Entry* below(const SlotTiers::Entry& tier) const;
  /// A slot in the tier `to` has all bytes of the extent's own slot.
  void add_replica(ExtentRef ref, SlotTiers::Entry& to, SlotId slot);
  /// Does nothing if there is none.
  void drop_replica(ExtentRef ref);
  /// The extent's own slot is given up, and its replica takes the place. There is one.
  void use_replica(ExtentRef ref);
  /// Returns whether drop_from_slots() may drop the extent, and does not know it.
  bool not_in_order(ExtentRef ref) const { return is_droppable_from_slot(ref) && !order_.has(ref); }
  /// Returns the size of the extent's slot.
  std::uint64_t slot_bytes_of(ExtentRef ref) const;
  /// Returns what the tier charges for the extent's slot: its size, or less where it is compressed.
  std::uint64_t charge_of(ExtentRef ref) const;

 private:
  bool next_replica_gives_way(SlotTiers::Entry& tier);
  void note_replica_gone(ExtentRef ref, SlotTiers::Entry& tier);
  bool is_below_memory(ExtentRef ref) const;
  bool gives_way(ExtentRef ref, const SlotTiers::Entry& tier) const;
  bool is_droppable_from_slot(ExtentRef ref) const;
  bool is_live(ExtentRef ref) const;
  bool has_own_slot(ExtentRef ref, const SlotTiers::Entry& tier) const;

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Bounce& bounce_;
  SlotTiers& slots_;
  Stuck& stuck_;
  SlotOrder order_;  // Droppable extents with a slot of their own that left memory.
  std::int64_t now_ = 0;
  Map<std::uint32_t, std::uint32_t> losses_;  // By buffer.
};

}  // namespace tiermem

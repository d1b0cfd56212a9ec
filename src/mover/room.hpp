// Room: frames for requests, and what leaves for them. It takes frames, or pages of one, for a need
// and chooses victims when there are none. It also keeps memory free ahead of need, makes stock,
// charges the records of extents, and changes budgets. It starts transfers, and knows requests only
// by the needs that it is given. The stepping thread only; never waits.
//
//   need.has_room()  =>  the frame, or the pages, are charged to the memory and used by nothing
//   else
#pragma once

#include <array>
#include <cstdint>

#include "base/arena.hpp"
#include "mover/job.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/priority.hpp"
#include "mover/request.hpp"
#include "mover/stock.hpp"
#include "mover/transfer_engine.hpp"
#include "policy/climb.hpp"
#include "policy/placement.hpp"
#include "policy/recency.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Room {
 public:
  /// Keeps up to `ahead_bytes_max` of each memory free ahead of need.
  Room(Residency& residency, Memories& memories, Journal& journal, Stock& stock,
       TransferEngine& engine, Workers& workers, std::uint64_t ahead_bytes_max);

  // ---- The step, in the order of its calls

  void begin_step(std::int64_t now) { now_ = now; }
  /// `news`: something has happened since the last step. Otherwise it only continued a search.
  void note_news(bool news);
  /// Makes room for lost areas of the bounce memory.
  void restore_bounce();
  /// Budgets of devices that were short of memory grow again.
  void end_shortages();
  /// Charges the records of extents to the budget. If memory is full, extents leave first.
  void serve_records();
  /// Frees memory ahead of need for frames that victims of other memories took.
  void serve_taken_frames();
  void settle();
  /// `head`: the request that collects room, or null. `seeks`: a granted request searches, too.
  void end_step(const Request* head, bool seeks);
  /// Returns when the next step must look for room without an event. `waits`: requests wait for
  /// room, or for pins.
  std::int64_t next(bool waits) const;

  // ---- Room for needs

  /// Takes room for what the need lacks: a frame, or pages of one. Returns false if there is none
  /// now.
  bool take_room(Need& need);
  /// Returns the reserved room. The next reservation is planned anew.
  void give_room(Need& need);
  /// The room that needs of one space lack.
  struct Lack {
    std::uint64_t bytes = 0;
    std::uint64_t in_parts = 0;  ///< The part of `bytes` for pages of extents in parts.
    std::uint64_t smallest = ~std::uint64_t{0};  ///< The least that one need lacks.
    /// By rank: the part of `bytes` for extents that prefer this memory. [0] is not used.
    std::array<std::uint64_t, kMostMemories> preferring{};
    /// By rank: the part of `bytes` for extents that this memory does not take.
    std::array<std::uint64_t, kMostMemories> barred{};
    /// By rank: the part of `bytes` for extents that only this memory takes.
    std::array<std::uint64_t, kMostMemories> bound{};
    void add(const Lack& more) {
      bytes += more.bytes;
      in_parts += more.in_parts;
      smallest = smallest < more.smallest ? smallest : more.smallest;
      for (unsigned rank = 0; rank < kMostMemories; ++rank) {
        preferring[rank] += more.preferring[rank];
        barred[rank] += more.barred[rank];
        bound[rank] += more.bound[rank];
      }
    }
    /// Returns the bytes that can be in the memory of this rank.
    std::uint64_t open_to(unsigned rank) const { return bytes - barred[rank]; }
  };
  /// Returns the room of a whole extent.
  Lack room_of(ExtentRef ref, unsigned space) const;
  /// Returns whether some memory of the space does not take the extent.
  bool is_barred(ExtentRef ref, unsigned space) const;
  /// Returns the room that the need lacks.
  Lack lack_of(Need& need);
  /// Returns whether the room that the need has is what it lacks.
  bool room_fits(const Need& need) const;
  /// Returns whether the budgets are large enough for these extents.
  bool ever_fits(unsigned space, const Lack& all) const;
  /// Returns false if allocation of the extent's record in the policy failed.
  bool find_record(unsigned space, ExtentRef ref);

  // ---- Victims

  /// A search for the first request of the queue begins.
  void begin_search();
  /// Evicts until what is lacking, and what is kept ahead of need, is on its way to be free in the
  /// space. `desperate`: also extents that were prefetched and not used.
  void make_room(unsigned space, const Lack& lack, Priority priority, bool desperate = false);
  /// A request waits for what is lacking: more is kept free from now on.
  void note_shortage(unsigned space, const Lack& lack);
  /// Returns whether all was looked at, or enough of it, in each memory of the space that can have
  /// what is lacking, and nothing is on its way.
  bool searched(unsigned space, const Lack& lack) const;
  /// Returns whether a memory of the space may have a victim that was not looked at.
  bool seeks(unsigned space) const;
  /// Returns the bytes of the space that were prefetched and not used.
  std::uint64_t unused_prefetched(unsigned space) const;
  bool drop_from_slots(std::uint64_t bytes);

  // ---- Climbs: extents move to the memory that they prefer, from slower ones if they are used

  /// Looks at some extents that are not in the memory that they prefer, and moves them if they are
  /// used or if that memory is a slower one with room. Part of the step.
  void serve_climbs();
  /// A hint says that the extent will be used soon, or that it prefers another memory.
  void wish_climb(ExtentRef ref);

  // ---- Destages: slot tiers keep some slots ready, by copies of others in the next tier

  /// Starts what the levels of the slot tiers ask for. Part of the step.
  void serve_destages();

  // ---- Stock and budgets

  /// Makes up to `count` spare buffers of one extent of `bytes`. `refused`: memory for records is
  /// short, so there will be none.
  void make_stock(std::uint64_t bytes, std::uint32_t count, bool refused);
  void limit_spares();
  /// No other change of a budget is in progress.
  void begin_budget_change(MemoryLedger& memory, std::uint64_t bytes);
  /// Goes back to the budget before the change.
  void undo_budget_change();
  /// Returns whether a change has ended: what is used is within the budget.
  bool serve_budget_change();
  bool budget_changes() const { return budget_changes_; }
  /// The memory of the last change of a budget.
  const MemoryLedger& budget_memory() const { return memories_.at(budget_memory_); }

  /// Steps in a row that only continued the search for victims.
  unsigned fruitless() const { return fruitless_; }

 private:
  FrameId frame_for(ExtentRef ref, unsigned space);
  FrameId frame_in(MemoryLedger& memory, ExtentRef ref);
  bool keeps_its_room(const MemoryLedger& memory, ExtentRef ref) const;
  bool has_other_memory_for(const Need& need) const;
  Placement::Pressure pressure_of(const MemoryLedger& memory) const;
  bool may_receive(const MemoryLedger& memory, std::uint64_t extent_bytes) const;
  MemoryLedger& memory_for(unsigned space, const Lack& lack, std::uint64_t bytes,
                           unsigned preferred = 0);
  unsigned preferred(ExtentRef ref, unsigned space) const;
  void make_room(MemoryLedger& memory, std::uint64_t bytes, Priority priority,
                 bool desperate = false);
  bool searched(const MemoryLedger& memory) const;
  void plan(Need& need);
  bool plan_stands(const Need& need) const;
  bool goes_on_for(const Request& head) const;
  Recency::Candidate candidate(ExtentRef ref, MemoryLedger& memory);
  std::uint64_t leaving_bytes(ExtentRef ref) const;
  void evict_ahead(MemoryLedger& memory, std::uint64_t bytes, bool parts = false);
  // destages.cpp
  FrameId frame_out_of_window(ExtentRef ref);
  // climbs.cpp
  void look_for_use(ExtentRef ref);
  bool move_to_preferred(ExtentRef ref);
  bool go_down(ExtentRef ref, MemoryLedger& to);
  bool climb(ExtentRef ref, unsigned rank);

  bool reclaim_spare();
  void note_budget_change(bool on);

  /// Spare buffers that may stay when memory is freed ahead of need.
  static constexpr std::uint64_t kKeptSpare = std::uint64_t{4} << 20;
  /// The bytes of records of extents that are not charged to the budget, and the step in which the
  /// charge grows.
  static constexpr std::uint64_t kFreeRecords = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kRecordsStep = std::uint64_t{64} << 10;
  static constexpr unsigned kMostFruitless = 64;

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  Journal& journal_;
  Stock& stock_;
  TransferEngine& engine_;
  Workers& workers_;
  const std::uint64_t ahead_bytes_max_;

  std::int64_t now_ = 0;
  Vector<Recency::Victim> victims_;
  Climb climb_;
  Vector<ExtentRef> wishes_;  // Extents that hints name.
  unsigned fruitless_ = 0;
  bool went_on_ = false;               // The last step asked for this one.
  bool desperate_ = false;             // The last search before a request is refused.
  std::uint64_t records_charged_ = 0;  // To the host's budget.
  bool budget_changes_ = false;
  unsigned budget_memory_ = 0;       // Its index.
  std::uint64_t budget_before_ = 0;  // Restored if the new one cannot be met.
};

}  // namespace tiermem

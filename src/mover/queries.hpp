// Queries: requests that are answered at once. They ask where bytes are, give advice, or give
// extents to another buffer; none waits. The stepping thread only.
#pragma once

#include <cstdint>

#include "base/arena.hpp"
#include "mover/journal.hpp"
#include "mover/memories.hpp"
#include "mover/refusals.hpp"
#include "mover/request.hpp"
#include "mover/room.hpp"
#include "mover/stock.hpp"
#include "mover/transfer_engine.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class Queries {
 public:
  Queries(Residency& residency, Memories& memories, const Journal& journal, const Stock& stock,
          TransferEngine& engine, Room& room, const Refusals& refusals)
      : residency_(residency),
        directory_(residency),
        memories_(memories),
        journal_(journal),
        stock_(stock),
        engine_(engine),
        room_(room),
        refusals_(refusals) {}

  void begin_step(std::int64_t now) { now_ = now; }

  void fill_info(std::uint32_t index, BufferInfo& info) const;
  void fill_census(Census& census) const;
  void fill_stats(Stats& stats) const;
  void describe_location(const Request& request) const;
  void advise(Request& request);
  void move_slots(const Request& request, bool resting) const;

 private:
  const MemoryLedger* host_memory_at(Place place) const;
  void prefer(ExtentRef ref, const MemoryLedger* memory);
  std::uint64_t add_tiers(const BufferRecord& record, Census::Row& row) const;
  bool at_rest_below(ExtentRef ref) const;
  bool move_slots(ExtentRef from, ExtentRef to) const;

  Residency& residency_;
  const Directory directory_;
  Memories& memories_;
  const Journal& journal_;
  const Stock& stock_;
  TransferEngine& engine_;
  Room& room_;
  const Refusals& refusals_;
  std::int64_t now_ = 0;
};

}  // namespace tiermem

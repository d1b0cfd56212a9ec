// Placement: which memory of a space receives an extent, and the destination of a victim. A victim
// is an extent with a frame that is wanted. Values in, values out: the caller gathers the facts and
// does what the answer says. Pure; any thread.
//
// A destination has a higher rank than the victim's memory (policy/cost.hpp): a device's bytes go
// to a memory of the host or to a slot. The host's go to its next memory or to a slot.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "policy/cost.hpp"

namespace tiermem {

struct Placement {
  /// A memory of a space, as an extent may come to it.
  struct Pressure {
    std::uint64_t budget = 0;
    std::uint64_t in_use = 0;
    bool closed = false;  ///< It is lost, or has refused an extent lately.
    bool stuck = false;   ///< Nothing in it can leave now.

    bool can_have(std::uint64_t bytes) const { return !closed && bytes <= budget; }
    bool has_room(std::uint64_t bytes) const { return can_have(bytes) && in_use + bytes <= budget; }
  };
  static constexpr unsigned kNone = ~0u;

  /// Returns the rank of the memory at a position of the order in which an extent looks for one:
  /// the memory that it prefers, then the others by rank.
  static unsigned in_order(unsigned position, unsigned preferred) {
    return position == 0 ? preferred : position - (position <= preferred ? 1 : 0);
  }

  /// Returns the rank of the memory that receives an extent of `bytes`: the first with room. If
  /// none has room, it is the first in which room can be made, else the first that can have such
  /// an extent at all, else kNone. `memories`: those of the space, by rank. `preferred`: the memory
  /// that comes first, by rank: see in_order().
  static unsigned memory(std::uint64_t bytes, std::span<const Pressure> memories,
                         unsigned preferred = 0) {
    const auto first = [&](const auto& fits) {
      for (unsigned position = 0; position < memories.size(); ++position) {
        if (const unsigned rank = in_order(position, preferred); fits(memories[rank])) {
          return rank;
        }
      }
      return kNone;
    };
    unsigned rank = first([&](const Pressure& at) { return at.has_room(bytes); });
    if (rank == kNone) {
      rank = first([&](const Pressure& at) { return at.can_have(bytes) && !at.stuck; });
    }
    return rank != kNone ? rank : first([&](const Pressure& at) { return at.can_have(bytes); });
  }

  /// The extent, as one memory has it.
  struct Victim {
    bool dirty = false;      ///< No slot copy has its newest bytes.
    bool elsewhere = false;  ///< Another memory has a copy.
    bool droppable = false;  ///< The program can make the bytes again.
    bool on_device = false;  ///< The memory is a device's.
    bool relocates = false;  ///< Its space has memories of higher rank, and it can move to them.
    bool spent = false;      ///< A hint says that it is not used again soon.
    bool way_out = true;     ///< The memory is not lost, and copies out of it are not paused.
    bool writable = false;   ///< A slot tier takes its bytes now.
    bool has_room = false;   ///< A memory of higher rank has room for it.
    bool asked = false;      ///< A request asks for the bytes to be written.

    bool only_copy() const { return dirty && !elsewhere; }
  };

  enum class Destination : std::uint8_t {
    released,  ///< The frame goes at once: the bytes are elsewhere too.
    memory,    ///< The bytes go to a memory of higher rank.
    slot,      ///< The bytes are written to a slot.
    dropped,   ///< The bytes go with the frame.
  };
  /// The destinations of a victim, the cheapest first.
  struct Destinations {
    std::array<Destination, 2> at{};
    unsigned count = 0;
    const Destination* begin() const { return at.data(); }
    const Destination* end() const { return at.data() + count; }
    bool empty() const { return count == 0; }
  };
  /// The costs of the two destinations that bytes can move to.
  struct Costs {
    Cost memory{.ns = 0, .rank = 1};
    Cost slot{.ns = 0, .rank = 2};
  };

  /// Returns the destinations of the victim. The caller takes the first that has room when the
  /// bytes are about to move. Empty: the victim stays. `has_room` is not looked at, because the
  /// caller reserves the room. Bytes that a slot has too go to the next memory of their space if
  /// that has room: a read from there is cheaper than one from the slot.
  static Destinations destinations(const Victim& victim) { return destinations(victim, Costs{}); }
  static Destinations destinations(const Victim& victim, const Costs& costs) {
    if (!victim.only_copy()) {
      return victim.relocates && !victim.elsewhere && !victim.asked && !victim.spent
                 ? Destinations{{Destination::memory, Destination::released}, 2}
                 : Destinations{{Destination::released}, 1};
    }
    if (!victim.way_out) {
      return {};
    }
    Destinations to;
    if ((victim.on_device || victim.relocates) && !victim.asked) {
      to.at[to.count++] = Destination::memory;
    }
    if (victim.writable) {
      to.at[to.count++] = Destination::slot;
    } else if (victim.droppable) {
      to.at[to.count++] = Destination::dropped;
    }
    // Bytes are dropped only if no tier takes them.
    if (to.count == 2 && to.at[1] == Destination::slot && costs.slot < costs.memory) {
      std::swap(to.at[0], to.at[1]);
    }
    return to;
  }

  /// The offer of a slot tier for the bytes of a victim.
  struct Offer {
    bool open = false;  ///< Writes are not paused, and the tier has not refused these bytes.
    bool own = false;   ///< The extent has a slot there that is written in place.
    Cost cost;
  };
  /// Returns the position of the offer that is taken, or kNone. A write in place comes first: often
  /// few of the bytes have changed. Among the others the cheapest is taken.
  static unsigned cheapest(std::span<const Offer> offers) {
    unsigned best = kNone;
    for (unsigned i = 0; i < offers.size(); ++i) {
      const Offer& offer = offers[i];
      const bool better = best == kNone || (offer.own && !offers[best].own) ||
                          (offer.own == offers[best].own && offer.cost < offers[best].cost);
      best = offer.open && better ? i : best;
    }
    return best;
  }

  /// Returns whether the victim's bytes must move before its frame is free. Droppable bytes that no
  /// slot tier takes are dropped.
  static bool must_move(const Victim& victim) {
    return victim.dirty && (victim.writable || !victim.droppable);
  }

  /// Returns whether the extent may become a victim. With `has_room` known, no victim is chosen
  /// that would stay.
  static bool can_leave(const Victim& victim) {
    return !must_move(victim) || victim.elsewhere ||
           (victim.way_out && (victim.writable || victim.has_room));
  }
};

}  // namespace tiermem

// Placement: the destination of a victim. A victim is an extent with a frame that is wanted. Values
// in, values out: the caller gathers the facts and does what the answer says. Pure; any thread.
//
// A destination has a higher rank than the victim's memory (policy/cost.hpp): a device's bytes go
// to the host or to a slot, the host's to a slot.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "policy/cost.hpp"

namespace tiermem {

struct Placement {
  /// The extent, as one memory has it.
  struct Victim {
    bool dirty = false;      ///< No slot copy has its newest bytes.
    bool elsewhere = false;  ///< Another memory has a copy.
    bool droppable = false;  ///< The program can make the bytes again.
    bool on_device = false;  ///< The memory is a device's.
    bool way_out = true;     ///< The memory is not lost, and copies out of it are not paused.
    bool writable = false;   ///< A slot tier takes its bytes now.
    bool host_room = false;  ///< On a device: the host has room for it.
    bool asked = false;      ///< A request asks for the bytes to be written.

    bool only_copy() const { return dirty && !elsewhere; }
  };

  enum class Destination : std::uint8_t {
    released,  ///< The frame goes at once: the bytes are elsewhere too.
    host,      ///< The bytes go to the host's memory.
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
    Cost host{.ns = 0, .rank = 1};
    Cost slot{.ns = 0, .rank = 2};
  };

  /// Returns the destinations of the victim. The caller takes the first that has room when the
  /// bytes are about to move. Empty: the victim stays. `host_room` is not looked at, because the
  /// caller reserves the room.
  static Destinations destinations(const Victim& victim) { return destinations(victim, Costs{}); }
  static Destinations destinations(const Victim& victim, const Costs& costs) {
    if (!victim.only_copy()) {
      return {{Destination::released}, 1};
    }
    if (!victim.way_out) {
      return {};
    }
    Destinations to;
    if (victim.on_device && !victim.asked) {
      to.at[to.count++] = Destination::host;
    }
    if (victim.writable) {
      to.at[to.count++] = Destination::slot;
    } else if (victim.droppable) {
      to.at[to.count++] = Destination::dropped;
    }
    // Bytes are dropped only if no tier takes them.
    if (to.count == 2 && to.at[1] == Destination::slot && costs.slot < costs.host) {
      std::swap(to.at[0], to.at[1]);
    }
    return to;
  }

  /// Returns whether the victim's bytes must move before its frame is free. Droppable bytes that no
  /// slot tier takes are dropped.
  static bool must_move(const Victim& victim) {
    return victim.dirty && (victim.writable || !victim.droppable);
  }

  /// Returns whether the extent may become a victim. With `host_room` known, no victim is chosen
  /// that would stay.
  static bool can_leave(const Victim& victim) {
    return !must_move(victim) || victim.elsewhere ||
           (victim.way_out && (victim.writable || victim.host_room));
  }
};

}  // namespace tiermem

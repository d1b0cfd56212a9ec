// What the actors of the model share: the words of one extent in the host's space and in a
// device's, which are the real ones, and as much of everything around them as can go wrong. Bytes
// are version numbers: 0 for zeros, one more for each write. What must hold in every state is in
// broken().
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "model/explorer.hpp"
#include "residency/extent_state.hpp"

namespace tiermem::model {

/// Ways to get the protocol wrong, each of which must be found.
enum class Flaw {
  none,
  no_generation_check,    // A pin is a view, whoever the extent belongs to by now.
  no_undo,                // A pin that came too late stays.
  silent_miss,            // Whoever undoes a pin tells nobody.
  no_second_look,         // The mover asks to be told, and sleeps without looking again.
  leave_without_looking,  // `outgoing` is entered by a look and an add, not by one CAS.
  leave_even_dirty,       // What no slot has is dropped as if one had it.
  copying_set_late,       // The mover sets `copying` once it has read the bytes.
  start_beside_writer,    // The mover sets `copying` while a writer is pinned.
  publish_any,            // The mover publishes a copy without a look at `copying`.
  share_any,              // The mover shares a copy without a look at `copying`.
  writer_keeps_copying,   // A writer leaves `copying` as it is.
  writer_clears_late,     // A writer clears `copying` after its pin has gone.
  writers_in_shared,      // A writer is content with a reader's pin.
  copies_stay,            // A writer is let in while another space has a copy.
  take_over_unchecked,    // What was written under the copy is not noticed when the source goes.
  free_looks_first,       // A freer looks at pins before it makes the handle stale.
  no_booking,             // A write into a slot does not keep the extent from becoming spare.
  late_booking,           // The mover looks whether an extent is spare, and books it after that.
  spare_even_dirty,       // What was spare when looked at leaves, whatever it is by now.
  fork_under_way,         // A fork does not wait for the transfer under way.
  home_without_looking,   // `at_home` is entered by a look and an or, not by one CAS.
};

/// The real word, and a step of it done wrong for each flaw inside of it.
class ModelWord : public BasicExtentWord<ModelAtomic> {
 public:
  Pin pin_write_keeping_copying() {
    const ExtentBits old{bits_.fetch_add(ExtentBits::kWriterOne, std::memory_order_seq_cst)};
    if (!old.view_writable()) {
      bits_.fetch_sub(ExtentBits::kWriterOne, std::memory_order_seq_cst);
      return Pin::miss;
    }
    bits_.fetch_or(ExtentBits::kDirty | ExtentBits::kReferenced, std::memory_order_relaxed);
    return Pin::ok;
  }
  void clear_copying() { bits_.fetch_and(~ExtentBits::kCopying, std::memory_order_relaxed); }
  void set_copying() { bits_.fetch_or(ExtentBits::kCopying, std::memory_order_relaxed); }
};
static_assert(sizeof(ModelWord) == sizeof(std::uint64_t));

inline constexpr unsigned kHost = 0, kDevice = 1, kSpaces = 2;
inline constexpr std::uint8_t kZeros = 0, kNothing = 255, kStale = 254, kLost = 253;

struct World {
  std::array<ModelWord, kSpaces> words{};
  std::array<std::uint8_t, kSpaces> frame{kNothing, kNothing};  ///< The version in it.
  std::array<std::uint8_t, kSpaces> readers{}, writers{};  ///< Views held, as their holders see it.
  std::uint8_t slot = kNothing;          ///< The version in it; kStale: a write has begun.
  std::uint8_t newest = kZeros;          ///< What a reader must see.
  std::uint8_t versions = 0;             ///< Writes so far.
  std::uint8_t copying = 0;              ///< The version that the transfer under way has read.
  std::uint8_t generation = 1;           ///< Of the buffer that has the extent.
  std::uint8_t life = 1;                 ///< Its generation when it was made.
  std::uint8_t pins_wanted = 0;          ///< Residency::pins_wanted.
  std::uint8_t woken = 0;                ///< The mover has been told to look again.
  std::uint8_t signal = 0;               ///< Between the actors of one scenario.
  std::uint8_t demoting = 0;             ///< A write into the slot is under way.
  std::uint8_t forked = 0;               ///< From here on this is the child.
  std::uint8_t at_home = 0;              ///< The host's frame is not in its window.
  std::array<std::uint8_t, 6> unused{};  // No padding.

  /// Without a step: for what cannot change under whoever looks, and for checks.
  ExtentBits bits(unsigned space) const { return {std::bit_cast<std::uint64_t>(words[space])}; }
  Phase phase(unsigned space) const { return bits(space).phase(); }
  bool readable(unsigned space) const { return bits(space).readable(); }
  void write(unsigned space) { newest = frame[space] = ++versions; }
};

/// In any state. Null: all is well.
inline const char* broken(const World& world) {
  bool somewhere = world.newest == kLost || world.slot == world.newest ||
                   (world.newest == kZeros && world.slot == kNothing);
  unsigned readable = 0, exclusive = 0;
  for (unsigned space = 0; space < kSpaces; ++space) {
    const ExtentBits bits = world.bits(space);
    somewhere = somewhere || world.frame[space] == world.newest;
    readable += bits.readable() ? 1 : 0;
    exclusive += bits.writable() ? 1 : 0;
    const bool arriving = bits.phase() == Phase::incoming;  // Pinned by pin_incoming.
    if (world.readers[space] + world.writers[space] > bits.readers() + bits.writers()) {
      return "a view has no pin";
    }
    if (space == kHost && world.at_home != 0 && world.readers[space] + world.writers[space] != 0) {
      return "a view is held of what is not in its window";
    }
    if (world.readers[space] != 0 && !bits.readable() && !arriving) {
      return "a view is held of what may move";
    }
    if (world.writers[space] != 0 && !bits.writable() && !arriving) {
      return "a writer's view is held of what is not exclusive";
    }
    if (bits.readable() && world.frame[space] != world.newest) {
      return "what can be read is not the newest";
    }
    // A writer is about to set `dirty`, before it writes.
    const bool never_written =
        world.newest == kZeros &&
        (world.slot == kNothing || world.demoting != 0 || bits.writers() != 0);
    if (bits.readable() && !bits.dirty() && world.slot != world.newest && !never_written) {
      return "clean, but no slot has these bytes";
    }
  }
  if (!somewhere) {
    return "the newest bytes are nowhere";
  }
  return exclusive > 1 || (exclusive == 1 && readable > 1) ? "exclusive, but not the only copy"
                                                           : nullptr;
}

/// Once all have ended.
inline const char* ends_badly(const World& world) {
  for (unsigned space = 0; space < kSpaces; ++space) {
    const ExtentBits bits = world.bits(space);
    // Pins that threads of the parent were about to take stay in the child of a fork.
    if (bits.pinned() && world.forked == 0) {
      return "a pin is left";
    }
    if (bits.phase() == Phase::incoming || bits.phase() == Phase::outgoing) {
      return "on its way for ever";
    }
    if (bits.copying()) {
      return "marked as being copied for ever";
    }
  }
  return nullptr;
}

inline std::string show(const World& world) {
  const auto version = [](std::uint8_t v) {
    return v == kNothing ? std::string("-")
           : v == kStale ? std::string("stale")
           : v == kLost  ? std::string("lost")
                         : std::to_string(v);
  };
  std::string text;
  for (unsigned space = 0; space < kSpaces; ++space) {
    const ExtentBits bits = world.bits(space);
    text += fmt::format("{} {}{}{}{} r{} w{} frame {} | ", space == kHost ? "host" : "device",
                        phase_name(bits.phase()), bits.dirty() ? " dirty" : "",
                        bits.booked() ? " booked" : "", bits.copying() ? " copying" : "",
                        bits.readers(), bits.writers(), version(world.frame[space]));
  }
  return text + fmt::format("slot {} newest {} generation {}", version(world.slot),
                            version(world.newest), world.generation);
}

}  // namespace tiermem::model

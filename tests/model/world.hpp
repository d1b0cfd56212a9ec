// The world that the actors of the model share: the real words of one extent in the host's space
// and in a device's, and the surrounding state that can become wrong. Bytes are version numbers: 0
// for zeros, one more for each write. broken() checks the properties of every state.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "model/explorer.hpp"
#include "residency/extent_state.hpp"

namespace tiermem::model {

/// Ways to break the protocol. The model must find each of them.
enum class Flaw {
  none,
  no_generation_check,    // A pin is used as a view without checking the extent's owner.
  no_undo,                // A pin that came too late is not removed.
  silent_miss,            // The removal of a pin is not reported to the mover.
  no_second_look,         // The mover asks for news, and sleeps without a second look.
  leave_without_looking,  // `outgoing` is set by a load and an add instead of one CAS.
  leave_even_dirty,       // Bytes that no slot has are dropped.
  copying_set_late,       // The mover sets `copying` after it has read the bytes.
  start_beside_writer,    // The mover sets `copying` while a writer is pinned.
  publish_any,            // The mover publishes a copy without checking `copying`.
  share_any,              // The mover shares a copy without checking `copying`.
  writer_keeps_copying,   // A writer does not clear `copying`.
  writer_clears_late,     // A writer clears `copying` after it has removed its pin.
  writers_in_shared,      // A writer accepts a reader's pin.
  copies_stay,            // A writer gets its view while another space has a copy.
  take_over_unchecked,    // A write during the copy is not noticed when the source leaves.
  free_looks_first,       // Freeing checks pins before it makes the handle stale.
  no_booking,             // A write to a slot does not prevent the extent from becoming spare.
  late_booking,      // The mover checks whether an extent is spare, and notes afterwards that it is
                     // known elsewhere.
  spare_even_dirty,  // An extent that was spare at a check leaves without a second check.
  fork_under_way,    // A fork does not wait for the transfer in progress.
  home_without_looking,  // `at_home` is set by a load and an or instead of one CAS.
  relocate_under_views,  // A relocation reads the bytes before views are kept out.
};

/// The real word. For each flaw inside the word, a function makes the step wrongly.
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
  std::array<std::uint8_t, kSpaces> frame{kNothing, kNothing};  ///< The version in each frame.
  /// Held views, as their holders see them.
  std::array<std::uint8_t, kSpaces> readers{}, writers{};
  std::uint8_t slot = kNothing;          ///< The version in the slot; kStale: a write has begun.
  std::uint8_t newest = kZeros;          ///< The version that a reader must see.
  std::uint8_t versions = 0;             ///< Number of writes so far.
  std::uint8_t copying = 0;              ///< The version that the transfer in progress has read.
  std::uint8_t generation = 1;           ///< The generation of the buffer that has the extent.
  std::uint8_t life = 1;                 ///< The generation at the beginning of the extent's life.
  std::uint8_t pins_wanted = 0;          ///< Residency::pins_wanted.
  std::uint8_t woken = 0;                ///< The mover was told to look again.
  std::uint8_t signal = 0;               ///< A message between the actors of one scenario.
  std::uint8_t demoting = 0;             ///< A write to the slot is in progress.
  std::uint8_t forked = 0;               ///< The world is now that of the child.
  std::uint8_t at_home = 0;              ///< The host's frame is not in its window.
  std::array<std::uint8_t, 6> unused{};  // No padding.

  /// Reads without a step: for values that no other actor can change now, and for checks.
  ExtentBits bits(unsigned space) const { return {std::bit_cast<std::uint64_t>(words[space])}; }
  Phase phase(unsigned space) const { return bits(space).phase(); }
  bool readable(unsigned space) const { return bits(space).readable(); }
  void write(unsigned space) { newest = frame[space] = ++versions; }
};

/// Checks any state. Returns null, or what is wrong.
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

/// Checks the state in which all actors have ended.
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
                        bits.known_elsewhere() ? " known elsewhere" : "",
                        bits.copying() ? " copying" : "", bits.readers(), bits.writers(),
                        version(world.frame[space]));
  }
  return text + fmt::format("slot {} newest {} generation {}", version(world.slot),
                            version(world.newest), world.generation);
}

}  // namespace tiermem::model

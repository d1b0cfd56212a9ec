// The copy of an extent in a slot tier: which slot it is, what is known of the slot's bytes, and
// whether they are the newest. A value. The directory changes the copy that an extent has
// (residency/directory.hpp). The stepping thread only.
#pragma once

#include <cstdint>

#include "tier/slot_tier.hpp"

namespace tiermem {

struct Checksums;  // residency/checksum.hpp
struct SlotPages;  // residency/slot_pages.hpp

/// The number of the tier of adopted files. Tiers that take writes have smaller numbers: their
/// ranks.
inline constexpr std::uint8_t kFileTier = 7;
inline constexpr std::uint8_t kMostWritableTiers = kFileTier;

/// The copy of an extent in a slot tier: the slot that it owns in a tier that takes writes, or else
/// its part of the file that its buffer adopted. A private extent that was written owns a slot, and
/// is no longer read from the file. A slot that an extent owns may have a replica.
///
///   state == none     =>  sums and pages are null, and the other members have no meaning
///   pages != nullptr  =>  owned()
struct SlotCopy {
  enum class State : std::uint8_t {
    none,     ///< There is no copy. All-zero is the state of an unused extent.
    current,  ///< The slot has the newest bytes.
    old,      ///< A copy in memory is dirty: the slot has earlier bytes.
    partial,  ///< A write into the slot has begun or failed.
  };

  SlotId slot{};
  Checksums* sums = nullptr;  ///< Checksums of the slot's bytes; the extent's. Null: none recorded.
  SlotPages* pages = nullptr;  ///< The pages that the slot has; the extent's. Null: all of them.
  std::uint32_t stamp = 0;     ///< Number of forks when the slot was allocated: SharedSlots.
  std::uint8_t tier : 4 = 0;   ///< The number of the slot tier.
  State state : 4 = State::none;

  bool in_file() const { return tier == kFileTier; }
  bool exists() const { return state != State::none; }
  bool current() const { return state == State::current; }
  bool partial() const { return state == State::partial; }
  /// Returns whether the extent owns the slot.
  bool owned() const { return exists() && !in_file(); }
};

/// A second slot, in a tier of higher rank, with the same bytes as the slot that the extent owns.
/// The checksums and the pages of the slot copy hold for the replica, too. Any write into the slot
/// ends it.
///
///   exists  =>  the extent owns a slot, in a tier of lower rank
struct SlotReplica {
  SlotId slot{};
  std::uint32_t stamp = 0;  ///< As of the slot copy.
  std::uint8_t tier = 0;
  bool exists = false;  ///< All-zero: there is none.
};

}  // namespace tiermem

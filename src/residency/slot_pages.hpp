// Which pages of its extent a slot has. A slot without such a record has all of them, each at its
// place. A slot with one has the recorded pages, one behind the other, and the others are zeros.
// Pure; any thread, one at a time.
//
// A page here has 4 KiB, or a 512th of an extent above 2 MiB. So a record needs at most 64 bytes
// of bits, and a write of a sparse extent at most 256 runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tier/frame.hpp"

namespace tiermem {

/// The pages of one slot, allocated with room for its bits.
struct SlotPages {
  static constexpr unsigned kMostPages = 512;

  std::uint32_t count = 0;       ///< Pages of the extent.
  std::uint32_t page_bytes = 0;  ///< A power of two.
  std::uint32_t stored = 0;      ///< Pages that the slot has.
  std::uint64_t bits[1] = {};    ///< One bit for each page of the extent: the slot has it.

  /// Returns a record without any page; null when memory is out or the extent has one page only.
  /// Free with destroy().
  static SlotPages* make(std::uint64_t extent_bytes);
  static void destroy(SlotPages* pages);
  /// Returns the same record once more; null when memory is out.
  SlotPages* clone() const;

  /// Returns whether at least 10 of 16 sampled pages begin with something else than zeros. Such an
  /// extent is not worth measuring. Reads at most 16 cache lines.
  static bool look_full(const std::byte* extent, std::uint64_t extent_bytes);
  /// Records every page that is not all zeros. `extent` may be written concurrently; the caller
  /// then discards the record.
  void measure(const std::byte* extent);
  void add(unsigned page);
  bool has(unsigned page) const { return (bits[page / 64] >> (page % 64) & 1) != 0; }
  /// The record of an extent that can be in parts: bit i is its i-th page.
  PageMask mask() const { return static_cast<PageMask>(bits[0]); }

  std::uint64_t extent_bytes() const { return std::uint64_t{count} * page_bytes; }
  /// The size of the slot: a power of two.
  std::uint64_t slot_bytes() const;
  /// The slot is smaller than the extent.
  bool saves() const { return slot_bytes() < extent_bytes(); }
  /// How many pages the slot has of those before `page`.
  unsigned before(unsigned page) const;
  /// The first page from `page` on that the slot has (`stored`), or lacks. `count`: there is none.
  unsigned next(unsigned page, bool stored) const;

  /// Pages from `first` to before `last` of the extent at `extent` come to their places. Those that
  /// the slot has are one behind the other from the place of `first` on; the others become zeros.
  void spread(std::byte* extent, unsigned first, unsigned last) const;
  /// The pages that the slot has come from their places to lie one behind the other, as in the
  /// slot.
  void pack(std::byte* extent) const;
};

struct DestroySlotPages {
  void operator()(SlotPages* pages) const { SlotPages::destroy(pages); }
};
using SlotPagesOwner = std::unique_ptr<SlotPages, DestroySlotPages>;

}  // namespace tiermem

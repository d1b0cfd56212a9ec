// Arithmetic with sets of pages of one extent.
#pragma once

#include <bit>
#include <cstdint>

#include "residency/extents.hpp"
#include "residency/slot_pages.hpp"

namespace tiermem {

/// Returns all pages of an extent of `extent_bytes`.
inline PageMask pages_of(std::uint64_t extent_bytes) {
  return static_cast<PageMask>((std::uint64_t{1} << extent_bytes / kSmallestExtent) - 1);
}

/// Returns the number of the first page of the set, which is not empty.
inline unsigned lowest(PageMask pages) {
  return static_cast<unsigned>(std::countr_zero(pages));
}

/// Returns the number of pages from the first to the last of the set.
inline unsigned count_from_lowest(PageMask pages) {
  return static_cast<unsigned>(std::bit_width(pages)) - lowest(pages);
}

/// Returns the pages of a partial extent that are zeros unless they are in memory.
inline PageMask zero_pages(const Extent& extent) {
  const SlotPages* const pages = extent.copy().pages;
  return extent.zeros | (pages != nullptr ? ~pages->mask() : PageMask{0});
}

}  // namespace tiermem

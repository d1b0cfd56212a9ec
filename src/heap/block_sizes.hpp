// The sizes of blocks. A small block has one of 36 classes: multiples of 16 up to 128, then four
// for each doubling up to 16 KiB. At most one fifth of a block above 128 bytes is unused. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tiermem::heap {

inline constexpr std::size_t kLeastAlign = 16;  ///< Min alignment of every block.
inline constexpr std::size_t kPage = 4096;      ///< Unit of runs.
inline constexpr std::size_t kLargestSmall = 16384;
inline constexpr unsigned kClasses = 36;

/// Returns the class of blocks of `bytes`, 0 to kLargestSmall.
constexpr unsigned class_of(std::size_t bytes) {
  if (bytes <= 128) {
    return bytes == 0 ? 0 : static_cast<unsigned>((bytes - 1) / 16);
  }
  const std::size_t last = bytes - 1;
  const unsigned log = static_cast<unsigned>(std::bit_width(last)) - 1;
  return 8 + 4 * (log - 7) + static_cast<unsigned>(last >> (log - 2) & 3);
}

/// Returns the bytes of a block of a class.
constexpr std::uint32_t class_bytes(unsigned size_class) {
  if (size_class < 8) {
    return (size_class + 1) * 16;
  }
  return (32u << ((size_class - 8) / 4)) * (5 + (size_class - 8) % 4);
}
static_assert(class_bytes(kClasses - 1) == kLargestSmall && class_of(kLargestSmall) == 35);

/// Returns the pages of a slab: 16 KiB, or eight blocks. At most one eighth of it holds no block.
constexpr std::uint32_t slab_pages(unsigned size_class) {
  const std::uint32_t bytes = class_bytes(size_class);
  return bytes <= 2048 ? 4 : bytes * 8 / static_cast<std::uint32_t>(kPage);
}
inline constexpr std::uint32_t kMostSlabBlocks = 4 * kPage / kLeastAlign;

/// Returns the smallest class with blocks that have `bytes` and start at multiples of `align`, a
/// power of two, or kClasses if there is none. Slabs begin at pages, so a class of a multiple of
/// `align` suffices.
constexpr unsigned aligned_class(std::size_t bytes, std::size_t align) {
  if (bytes > kLargestSmall || align > kPage) {
    return kClasses;
  }
  unsigned size_class = class_of(bytes);
  while ((class_bytes(size_class) & (align - 1)) != 0) {
    ++size_class;  // 16 KiB is a multiple of each alignment.
  }
  return size_class;
}

/// Blocks up to this size pass through the magazines of threads.
inline constexpr std::size_t kLargestKept = 1024;
inline constexpr unsigned kKeptClasses = class_of(kLargestKept) + 1;
inline constexpr std::uint32_t kMagazineBlocks = 64;

/// Returns the class of blocks of `bytes`, 0 to kLargestKept. A table: this is on the path that
/// takes no lock.
inline unsigned kept_class(std::size_t bytes) noexcept {
  static constexpr auto kClassOfUnits = [] {
    std::array<std::uint8_t, kLargestKept / kLeastAlign + 1> classes{};
    for (std::size_t units = 0; units < classes.size(); ++units) {
      classes[units] = static_cast<std::uint8_t>(class_of(units * kLeastAlign));
    }
    return classes;
  }();
  return kClassOfUnits[(bytes + kLeastAlign - 1) / kLeastAlign];
}

/// Returns how many blocks of a class a magazine holds at most: 64, and as many as 16 KiB hold.
constexpr std::uint32_t magazine_blocks(unsigned size_class) {
  return std::min(kMagazineBlocks, 16384 / class_bytes(size_class));
}

/// Max bytes of blocks in the magazines that one thread has in one heap.
inline constexpr std::uint64_t kMagazinesBytes = [] {
  std::uint64_t bytes = 0;
  for (unsigned size_class = 0; size_class < kKeptClasses; ++size_class) {
    bytes += std::uint64_t{magazine_blocks(size_class)} * class_bytes(size_class);
  }
  return bytes;
}();
static_assert(kMagazinesBytes <= 224 * 1024);

}  // namespace tiermem::heap

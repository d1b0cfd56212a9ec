// Terms that the contracts of memories, address spaces and slot tiers share: the sizes of extents,
// the name of a frame, and sets of pages of an extent.
#pragma once

#include <cstdint>

namespace tiermem {

inline constexpr std::uint64_t kSmallestExtent = 4096;
inline constexpr std::uint64_t kDefaultExtent = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kLargestExtent = std::uint64_t{64} << 20;

/// The pool of a frame (design §5). `locked` frames never change address: buffers of one extent,
/// staging. `movable` frames appear in windows and use huge pages. `small` frames appear in windows
/// and use 4 KiB pages.
enum class Pool : std::uint8_t { locked, movable, small };

/// Max number of memories of an address space.
inline constexpr unsigned kMostMemories = 8;

/// A frame: room for one extent in a memory. It names its memory, so that the address space finds
/// the memory of a frame. Only the memory interprets the other bits, except that it sets no bit
/// from kMemoryShift to kMemoryShift + 2.
struct FrameId {
  static constexpr unsigned kMemoryShift = 53;
  std::uint64_t value = ~std::uint64_t{0};
  bool valid() const { return value != ~std::uint64_t{0}; }
  /// Returns the number of the memory in AddressSpace::memories(). The frame must be valid.
  unsigned memory() const { return static_cast<unsigned>(value >> kMemoryShift) % kMostMemories; }
  /// Returns the frame with these bits in the memory of this number.
  static FrameId in_memory(unsigned number, std::uint64_t bits) {
    return {bits | std::uint64_t{number} << kMemoryShift};
  }
  friend bool operator==(FrameId, FrameId) = default;
};

/// How a frame came to appear in its window. Receipts name it.
enum class Mechanism : std::uint8_t { in_place, uffd_move, remap, copy };

/// A set of pages of an extent: bit i is its i-th page of kSmallestExtent.
using PageMask = std::uint32_t;
/// Number of pages of the largest extent that can be in parts.
inline constexpr unsigned kMostParts = 32;

}  // namespace tiermem

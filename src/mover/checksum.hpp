// Checksums of an extent's bytes, one per block, XXH3-128. They prove that what a slot gives back
// is what was put there. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiermem {

/// Checksums of one slot, allocated with room for its blocks.
struct Checksums {
  struct Hash {
    std::uint64_t low, high;
    friend bool operator==(Hash, Hash) = default;
  };
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};

  std::uint32_t count = 0;
  std::uint32_t block_bytes = 0;
  Hash blocks[1];

  /// Room for an extent's blocks; null only when memory is out. Free with destroy().
  static Checksums* make(std::uint64_t extent_bytes, std::uint32_t block_bytes);
  static void destroy(Checksums* sums);

  /// Of one block.
  static Hash hash(const std::byte* bytes, std::size_t n);
  /// Of the blocks in `which`: bit i is the i-th, the last bit's also means all after it. Ends
  /// between two blocks once `stop` is true, which another thread sets atomically.
  void compute(const std::byte* bytes, std::uint32_t which = kAll, bool* stop = nullptr);
  /// The first block of `which` that differs, or `count`.
  std::uint32_t mismatch(const std::byte* bytes, std::uint32_t which = kAll) const;
  /// Of a block of zeros.
  Hash of_zeros() const;
  /// As those of `other`, of the same shape.
  void copy(const Checksums& other);
  /// The blocks whose checksum is not `other`'s. At most 32 blocks of the same shape.
  std::uint32_t unlike(const Checksums& other) const;
  /// No bytes have the checksums of these blocks any more: what the slot has of them is unknown.
  void doubt(std::uint32_t which);
  /// The first and the last block whose checksum is not `other`'s, or `count`. Both are of the same
  /// shape.
  std::uint32_t first_unlike(const Checksums& other) const;
  std::uint32_t last_unlike(const Checksums& other) const;
};

}  // namespace tiermem

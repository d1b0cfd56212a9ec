// Checksums of an extent's bytes, one per block, XXH3-128. They prove that what a slot gives back
// is what was put there. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

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

  /// Allocates checksums for an extent's blocks. Returns null only if memory is exhausted. Free
  /// them with destroy().
  static Checksums* make(std::uint64_t extent_bytes, std::uint32_t block_bytes);
  static void destroy(Checksums* sums);

  /// Returns the checksum of one block.
  static Hash hash(const std::byte* bytes, std::size_t n);
  /// Computes the checksums of the blocks in `which`: bit i is block i, and the last bit stands for
  /// all later blocks too. Ends between two blocks once `stop` is true; another thread sets it
  /// atomically.
  void compute(const std::byte* bytes, std::uint32_t which = kAll, bool* stop = nullptr);
  /// Returns whether each block of `which` has a checksum. One that nothing has read yet is Hash{}.
  bool seen(std::uint32_t which = kAll) const;
  /// Returns the first block of `which` that differs, or `count`. A block that nothing has read yet
  /// does not differ.
  std::uint32_t mismatch(const std::byte* bytes, std::uint32_t which = kAll) const;
  /// Returns the checksum of a block of zeros.
  Hash of_zeros() const;
  /// Copies the checksums of `other`, which has the same shape.
  void copy(const Checksums& other);
  /// Returns the blocks with a checksum that differs from `other`. Both have the same shape, with
  /// at most 32 blocks.
  std::uint32_t unlike(const Checksums& other) const;
  /// Sets checksums that no bytes have, because the slot's bytes of these blocks are unknown.
  void doubt(std::uint32_t which);
  /// Return the first and the last block with a checksum that differs from `other`, or `count`.
  /// Both have the same shape.
  std::uint32_t first_unlike(const Checksums& other) const;
  std::uint32_t last_unlike(const Checksums& other) const;
};

struct DestroyChecksums {
  void operator()(Checksums* sums) const { Checksums::destroy(sums); }
};
using ChecksumsOwner = std::unique_ptr<Checksums, DestroyChecksums>;

}  // namespace tiermem

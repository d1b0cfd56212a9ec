// Reads of a gather: blocks that somebody copies rows from, brought without their extents. The
// caller plans them, the mover says of each what became of it, and the caller checks and copies:
// what a row goes to is the program's memory, which no thread of ours touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mover/checksum.hpp"
#include "residency/extents.hpp"

namespace tiermem {

/// Blocks of one extent that lie beside each other.
struct GatherRead {
  enum class Found : std::uint8_t {
    nothing,    ///< Not yet.
    bytes,      ///< They are at `data`, as a slot or a file has them.
    zeros,      ///< Never written: nothing was read.
    elsewhere,  ///< Not in a slot alone: a view finds them. Of what is known: not as it was.
    known,      ///< The slot has the block that the caller knows.
    failed,     ///< The device refused twice; the request says why.
  };
  ExtentRef ref = 0;
  std::uint32_t offset = 0;  ///< In the extent. Of whole checksum blocks, as is `length`.
  std::uint32_t length = 0;
  std::byte* data = nullptr;  ///< In the extent `into` of the list.
  std::uint64_t rows = 0;     ///< Bytes that the caller copies from it; rows may come twice.
  /// Room for a checksum of each block.
  Checksums::Hash* sums = nullptr;
  // The answer.
  Found found = Found::nothing;
  bool again = false;  ///< It was refused once.
  /// Bytes that each of `sums` is of; 0: none are known.
  std::uint32_t sum_bytes = 0;
};

/// What one request brings. The caller's until it is posted, and again once it is done.
struct GatherList {
  std::span<GatherRead> reads;  ///< By extent and offset.
  /// A whole extent that the caller has a view of. It is pinned for each transfer as well: a
  /// request that ends early leaves reads behind that are still under way.
  ExtentRef into = 0;
  /// Nothing is read: each of `reads` is one block whose checksum the caller has in `sums`, and the
  /// answer is whether a slot has that block now. `data` and `into` are not used.
  bool known = false;
};

}  // namespace tiermem

// Reads of a gather: blocks that the caller wants, read without promoting their extents. The caller
// plans the reads, the mover reports the result of each, and the caller verifies and copies.
//
// A read goes to memory of tiermem, from which the caller copies rows, or directly to memory of the
// program. No thread of tiermem touches that memory: its pages may be absent, and a page fault
// could wait for the mover. A request is answered only when no device has such a read for it, even
// if it is late or cancelled. So its answer means that the memory is the program's again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/checksum.hpp"
#include "residency/extents.hpp"

namespace tiermem {

/// Adjacent blocks of one extent.
struct GatherRead {
  enum class Found : std::uint8_t {
    nothing,    ///< Not read yet.
    bytes,      ///< They are at `data`, as a slot or a file has them.
    zeros,      ///< Never written: nothing was read.
    elsewhere,  ///< Not only in a slot: a view finds them. The caller's known block: it has
                ///< changed.
    known,      ///< The slot has the block that the caller knows.
    failed,     ///< The device refused twice; the request says why.
  };
  ExtentRef ref = 0;
  std::uint32_t offset = 0;  ///< In the extent. It and `length` are multiples of a checksum block.
  std::uint32_t length = 0;
  std::byte* data = nullptr;  ///< In the extent `into` of the list, or of the program.
  bool to_program = false;    ///< `data` is memory of the program.
  std::uint64_t rows = 0;     ///< Bytes that the caller copies from it; a row can be wanted twice.
  /// Room for a checksum of each block.
  Checksums::Hash* sums = nullptr;
  // The answer.
  Found found = Found::nothing;
  bool again = false;  ///< The device has refused it once.
  /// Bytes that each of `sums` covers; 0: no checksums are known. A checksum of zeros in `sums` is
  /// not known.
  std::uint32_t sum_bytes = 0;
};

/// The reads of one request. The caller owns the list until it posts the request, and again once
/// the request is done.
struct GatherList {
  std::span<GatherRead> reads;  ///< By extent and offset.
  /// A whole extent that the caller has a view of. It is pinned for each transfer as well: a
  /// request that ends early leaves reads behind that are still under way. kNoExtent: there is
  /// none, and no read needs it.
  ExtentRef into = kNoExtent;
  /// Nothing is read. Each of `reads` is one block, its checksum is in `sums`, and the answer tells
  /// whether a slot has that block now. `data` and `into` are not used.
  bool known = false;
};

}  // namespace tiermem

// Whether memory of this process is tiered, since when, and the context that does it. A process
// that stays small is let alone: its first megabytes are plain memory, and neither threads nor
// files are made for it. Tiering begins with the memory that goes beyond.
//
// Threads: any. What is read on every path is atomic; starting is done by one thread, and the
// others take plain memory meanwhile, so that nobody waits for a context inside malloc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiermem/context.hpp"

namespace tiermem::preload {

/// From the environment, read once. Sizes in bytes.
struct Settings {
  /// TIERMEM_START: plain memory before tiering. In a run as run_start() says.
  std::size_t start = std::size_t{32} << 20;
  std::size_t medium = std::size_t{256} << 10;   ///< From here on: the heap of huge extents.
  std::size_t large = std::size_t{32} << 20;     ///< TIERMEM_THRESHOLD: from here on a buffer each.
  std::size_t mapping = std::size_t{256} << 10;  ///< From here on an mmap has a buffer of its own.
  std::size_t small = std::size_t{32} << 10;     ///< Least mmap that is tiered.
};
const Settings& settings();
/// A size in the environment; what is none is told of, and `value` stays.
void read_size(const char* name, std::size_t& value);

inline constexpr std::size_t kSmallExtent = std::size_t{64} << 10;  ///< Touched at random.
/// Extents of medium and large blocks and of large mappings: TIERMEM_EXTENT, but not more than a
/// thirty-second of the budget. Once tiering is on.
std::size_t large_extent();
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;  ///< Large blocks begin at one.

/// Memory of `bytes` is about to be taken from the kernel: should it come from the tiers instead?
/// Starts tiering when it is time to. False inside tiermem.
bool tiered(std::size_t bytes);
/// Null while tiering is not on.
Context* context();
/// Bytes that the largest file of the block tier may have. 0: there is none, or tiering is not on.
std::uint64_t largest_file();
/// Memory that is taken from now on is plain; what is tiered stays so. `why` is told when the process
/// has more than it may have untold; it lives as long as the process.
void stop_tiering(const char* why);

}  // namespace tiermem::preload

// Decides whether memory of this process is tiered, and owns the context. A process that stays
// small is left alone: its first megabytes are plain memory, and it gets neither threads nor files.
// Tiering begins with the memory above that.
//
// Threads: any. Values read on every path are atomic. One thread starts tiering; the others take
// plain memory until it has finished, so that no thread waits for a context inside malloc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiermem/context.hpp"

namespace tiermem::preload {

/// From the environment, read once. Sizes in bytes.
struct Settings {
  /// TIERMEM_START: plain memory before tiering. In a run the default is run_start().
  std::size_t start = std::size_t{32} << 20;
  /// Minimum size of a block in the heap of large extents.
  std::size_t medium = std::size_t{256} << 10;
  /// TIERMEM_THRESHOLD: minimum size of a block with a buffer of its own.
  std::size_t large = std::size_t{32} << 20;
  /// Minimum size of an mmap with a buffer of its own.
  std::size_t mapping = std::size_t{256} << 10;
  std::size_t small = std::size_t{32} << 10;     ///< Minimum size of an mmap that is tiered.
};
const Settings& settings();
/// Reads a size from the environment. If it is not a size, logs that and leaves `value` unchanged.
void read_size(const char* name, std::size_t& value);

/// For memory with random touches.
inline constexpr std::size_t kSmallExtent = std::size_t{64} << 10;
/// Extents of medium and large blocks and of large mappings: TIERMEM_EXTENT, but at most a
/// thirty-second of the budget. Valid once tiering is on.
std::size_t large_extent();
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;  ///< Large blocks begin at one.

/// Whether the next `bytes` should come from the tiers instead of the kernel. Starts tiering when
/// it is due. Always false inside tiermem.
bool tiered(std::size_t bytes);
/// Null while tiering is not on.
Context* context();
/// Size limit of the block tier's largest file. 0: there is none, or tiering is not on.
std::uint64_t largest_file();
/// New memory is plain from now on; tiered memory stays tiered. `why` is reported once the process
/// has more plain memory than may go unreported. It must live as long as the process.
void stop_tiering(const char* why);

}  // namespace tiermem::preload

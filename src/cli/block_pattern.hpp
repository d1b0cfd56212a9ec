// The bytes that a replay writes into a block, derived from the block's number and version, and the
// checksum that identifies them. It detects a swapped, stale, torn or zeroed block. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace tiermem::cli {

/// Fills the block and returns its checksum. The block's size is a multiple of 64.
std::uint64_t write_block_pattern(std::span<std::byte> block, std::uint32_t number,
                                  std::uint32_t version);
/// XXH3-64 of all the bytes.
std::uint64_t block_checksum(std::span<const std::byte> block);

}  // namespace tiermem::cli

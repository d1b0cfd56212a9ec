// The bytes that a replay writes into a block, made of the block's number and version, and the
// checksum by which it knows them again. A swapped, stale, torn or zeroed block is seen. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace tiermem::cli {

/// Fills the block, whose size is a multiple of 64, and returns its checksum.
std::uint64_t write_block_pattern(std::span<std::byte> block, std::uint32_t number,
                                  std::uint32_t version);
/// XXH3-64 of all the bytes.
std::uint64_t block_checksum(std::span<const std::byte> block);

}  // namespace tiermem::cli

// Eight counters. Their start differs for each number and version.
#include "cli/block_pattern.hpp"

#include <xxhash.h>

#include <cstring>

namespace tiermem::cli {
namespace {

/// splitmix64's last step: different inputs give different words.
std::uint64_t mixed(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

}  // namespace

std::uint64_t write_block_pattern(std::span<std::byte> block, std::uint32_t number,
                                  std::uint32_t version) {
  std::uint64_t word = mixed((std::uint64_t{version} << 32 | number) + 0x9e3779b97f4a7c15ULL);
  std::uint64_t line[8];
  for (std::size_t at = 0; at + sizeof(line) <= block.size(); at += sizeof(line)) {
    for (std::uint64_t& part : line) {
      part = word * 0xd6e8feb86659fd93ULL;
      word += 0x9e3779b97f4a7c15ULL;
    }
    std::memcpy(block.data() + at, line, sizeof(line));
  }
  return block_checksum(block);
}

std::uint64_t block_checksum(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

}  // namespace tiermem::cli

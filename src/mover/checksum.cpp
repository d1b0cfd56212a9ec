// XXH3-128 by blocks.
#include "mover/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tiermem {
namespace {

Checksums::Hash hash_block(const std::byte* bytes, std::size_t n) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, n);
  return {hash.low64, hash.high64};
}

}  // namespace

Checksums* Checksums::make(std::uint64_t extent_bytes, std::uint32_t block_bytes) {
  const auto block = static_cast<std::uint32_t>(std::min<std::uint64_t>(block_bytes, extent_bytes));
  const auto count = static_cast<std::uint32_t>(extent_bytes / block);
  void* memory = std::malloc(sizeof(Checksums) + (count - 1) * sizeof(Hash));
  if (memory == nullptr) {
    return nullptr;
  }
  auto* sums = new (memory) Checksums;
  sums->count = count;
  sums->block_bytes = block;
  return sums;
}

void Checksums::destroy(Checksums* sums) { std::free(sums); }

void Checksums::compute(const std::byte* bytes) {
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks[i] = hash_block(bytes + std::uint64_t{i} * block_bytes, block_bytes);
  }
}

std::uint32_t Checksums::mismatch(const std::byte* bytes) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (blocks[i] != hash_block(bytes + std::uint64_t{i} * block_bytes, block_bytes)) {
      return i;
    }
  }
  return count;
}

}  // namespace tiermem

// XXH3-128 by blocks, with the widest vectors of this processor where the library can choose them
// at run time: its plain functions are built for the oldest processor of the architecture and take
// twice as long.
#include "residency/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <new>

#include "base/arena.hpp"

// Weak: libraries built without the choice do not have it, and then it is null.
extern "C" XXH128_hash_t XXH3_128bits_dispatch(const void* data, std::size_t bytes)
    __attribute__((weak));

namespace tiermem {
namespace {

using HashFunction = XXH128_hash_t (*)(const void*, std::size_t);

// Both compute the same hash. The first call of the library's choice writes a table that it does
// not lock: made here, where the compiler's guard lets one thread through.
HashFunction fastest() {
  static const HashFunction function = [] {
    const HashFunction chosen = XXH3_128bits_dispatch;
    const std::byte warm_up[1024] = {};
    if (chosen != nullptr) {
      (void)chosen(warm_up, sizeof(warm_up));
    }
    return chosen != nullptr ? chosen : HashFunction{XXH3_128bits};
  }();
  return function;
}

bool has(std::uint32_t which, std::uint32_t block) {
  return (which >> std::min(block, 31u) & 1) != 0;
}

constexpr std::size_t kZeroBlock = 4096;

std::size_t room(std::uint32_t count) {
  return sizeof(Checksums) + (count - 1) * sizeof(Checksums::Hash);
}

}  // namespace

Checksums::Hash Checksums::hash(const std::byte* bytes, std::size_t n) {
  const XXH128_hash_t hash = fastest()(bytes, n);
  return {hash.low64, hash.high64};
}

Checksums* Checksums::make(std::uint64_t extent_bytes, std::uint32_t block_bytes) {
  const auto block = static_cast<std::uint32_t>(std::min<std::uint64_t>(block_bytes, extent_bytes));
  const auto count = static_cast<std::uint32_t>(extent_bytes / block);
  void* memory = arena_allocate(room(count));
  if (memory == nullptr) {
    return nullptr;
  }
  auto* sums = new (memory) Checksums;
  sums->count = count;
  sums->block_bytes = block;
  return sums;
}

void Checksums::destroy(Checksums* sums) {
  if (sums != nullptr) {
    arena_free(sums, room(sums->count));
  }
}

void Checksums::compute(const std::byte* bytes, std::uint32_t which, bool* stop) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (stop != nullptr && std::atomic_ref(*stop).load(std::memory_order_relaxed)) {
      return;
    }
    if (has(which, i)) {
      blocks[i] = hash(bytes + std::uint64_t{i} * block_bytes, block_bytes);
    }
  }
}

Checksums::Hash Checksums::of_zeros() const {
  // Most blocks have a page, and those are asked for most.
  static constexpr std::byte kZeros[kZeroBlock]{};
  static const Hash page = hash(kZeros, kZeroBlock);
  if (block_bytes == kZeroBlock) {
    return page;
  }
  const Vector<std::byte> zeros(block_bytes);
  return hash(zeros.data(), block_bytes);
}

void Checksums::copy(const Checksums& other) {
  assert(count == other.count && block_bytes == other.block_bytes);
  std::copy_n(other.blocks, count, blocks);
}

std::uint32_t Checksums::unlike(const Checksums& other) const {
  assert(count == other.count && count <= 32);
  std::uint32_t mask = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    mask |= blocks[i] == other.blocks[i] ? 0 : 1u << i;
  }
  return mask;
}

void Checksums::doubt(std::uint32_t which) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (has(which, i)) {
      blocks[i] = {~blocks[i].low, ~blocks[i].high};
    }
  }
}

std::uint32_t Checksums::first_unlike(const Checksums& other) const {
  std::uint32_t i = 0;
  while (i < count && blocks[i] == other.blocks[i]) {
    ++i;
  }
  return i;
}

std::uint32_t Checksums::last_unlike(const Checksums& other) const {
  for (std::uint32_t i = count; i-- > 0;) {
    if (blocks[i] != other.blocks[i]) {
      return i;
    }
  }
  return count;
}

bool Checksums::seen(std::uint32_t which) const {
  std::uint32_t i = 0;
  while (i < count && !(has(which, i) && blocks[i] == Hash{})) {
    ++i;
  }
  return i == count;
}

std::uint32_t Checksums::mismatch(const std::byte* bytes, std::uint32_t which) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (has(which, i) && blocks[i] != Hash{} &&
        blocks[i] != hash(bytes + std::uint64_t{i} * block_bytes, block_bytes)) {
      return i;
    }
  }
  return count;
}

}  // namespace tiermem

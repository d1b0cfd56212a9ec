// Shared by the tests of the slot tiers: page-aligned memory with a pattern, and functions that run
// transfers to their end.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tier/block.hpp"

namespace tiermem {

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Bytes = std::unique_ptr<std::byte[], FreeBytes>;

/// Returns bytes that differ for every seed and every 8 bytes; seed 0: zeros. Aligned to 4 KiB.
inline Bytes pattern(std::uint64_t bytes, std::uint64_t seed) {
  const std::uint64_t room = (bytes + 4095) / 4096 * 4096;
  Bytes data(static_cast<std::byte*>(std::aligned_alloc(4096, room)));
  std::memset(data.get(), 0, room);
  for (std::uint64_t i = 0; seed != 0 && i < room / 8; ++i) {
    std::uint64_t word = (seed * 0x9e3779b97f4a7c15) ^ (i * 0xd6e8feb86659fd93);
    word ^= word >> 32;
    std::memcpy(data.get() + i * 8, &word, 8);
  }
  return data;
}

/// Steps the tier until a completion arrives, and returns it.
inline SlotCompletion reap_one(SlotTier& tier) {
  SlotCompletion completion;
  for (int step = 0; step < 100000; ++step) {
    if (tier.reap({&completion, 1}) == 1) {
      return completion;
    }
  }
  ADD_FAILURE() << "no completion";
  completion.code = Code::internal;
  return completion;
}

/// Allocates slots until the tier has no capacity; grows the tier when it asks for that.
inline std::vector<SlotId> allocate_all(BlockTier& tier, std::uint64_t bytes) {
  std::vector<SlotId> slots;
  for (;;) {
    const Result<SlotId> slot = tier.allocate(bytes, 0);
    if (slot.ok()) {
      slots.push_back(*slot);
    } else if (slot.code() != Code::busy || !tier.grow(bytes).ok()) {
      return slots;
    }
  }
}

}  // namespace tiermem

// Page-aligned bytes that identify what was written. Any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "support/page_bytes.hpp"
#include "support/pattern.hpp"

namespace tiermem::contract {

using Block = test::PageBytes;

/// Returns bytes that differ for every seed and every 8 bytes; seed 0: zeros.
inline Block pattern(std::uint64_t bytes, std::uint64_t seed) {
  Block data(bytes);
  if (seed != 0) {
    const std::uint64_t words = bytes / 8;
    test::fill({reinterpret_cast<std::uint64_t*>(data.data()), words}, seed);
    const std::uint64_t last = test::word_at(seed, words);
    std::memcpy(data.data() + words * 8, &last, bytes % 8);
  }
  return data;
}

}  // namespace tiermem::contract

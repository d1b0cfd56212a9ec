// Page-aligned bytes that identify what was written. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

/// Compares all bytes. The text of a failure names the first one that differs.
inline testing::AssertionResult same(const Block& seen, const Block& expected) {
  if (seen == expected) {
    return testing::AssertionSuccess();
  }
  const auto at = std::mismatch(seen.begin(), seen.end(), expected.begin(), expected.end());
  return testing::AssertionFailure()
         << "byte " << at.first - seen.begin() << " differs; there are " << seen.size()
         << " bytes, and " << expected.size() << " are expected";
}

}  // namespace tiermem::contract

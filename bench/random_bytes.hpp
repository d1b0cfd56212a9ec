// Bytes without shortcuts for disks, hosts or checksums, and bytes that compress. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tiermem::bench {

/// xorshift64* in eight lanes: about as fast as memory. `length` is rounded down to a multiple of
/// 64.
inline void fill_random(std::byte* to, std::uint64_t length, std::uint64_t seed) {
  std::uint64_t lanes[8];
  for (std::uint64_t i = 0; i < 8; ++i) {
    lanes[i] = (seed * 8 + i + 1) * 0x9e3779b97f4a7c15ULL;
  }
  for (std::uint64_t at = 0; at + sizeof(lanes) <= length; at += sizeof(lanes)) {
    for (std::uint64_t& lane : lanes) {
      lane ^= lane >> 12;
      lane ^= lane << 25;
      lane ^= lane >> 27;
    }
    std::memcpy(to + at, lanes, sizeof(lanes));
  }
}

/// In each 64 bytes, 16 are random and the others constant: page compression reduces them to about
/// a third.
inline void fill_compressible(std::byte* to, std::uint64_t length, std::uint64_t seed) {
  fill_random(to, length, seed);
  for (std::uint64_t at = 0; at + 64 <= length; at += 64) {
    std::memset(to + at + 16, 0x5a, 48);
  }
}

}  // namespace tiermem::bench

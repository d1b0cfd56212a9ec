// Words that a test can check, and the resident bytes of this process, for programs without
// tiermem's headers. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace tiermem::test {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline std::uint64_t word_of(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return x * 0x94D049BB133111EBu;
}

inline void put_words(void* block, std::size_t bytes, std::uint64_t seed) {
  auto* const words = static_cast<volatile std::uint64_t*>(block);
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    words[i] = word_of(seed, i);
  }
}

inline std::uint64_t wrong_words(const void* block, std::size_t bytes, std::uint64_t seed) {
  const auto* const words = static_cast<const volatile std::uint64_t*>(block);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    wrong += words[i] != word_of(seed, i) ? 1 : 0;
  }
  return wrong;
}

inline std::size_t nonzero_words(const void* block, std::size_t bytes) {
  const auto* const words = static_cast<const volatile std::uint64_t*>(block);
  std::size_t n = 0;
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    n += words[i] != 0 ? 1 : 0;
  }
  return n;
}

/// Returns the resident anonymous bytes of this process.
inline std::size_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[256];
  unsigned long kib = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "RssAnon: %lu", &kib) == 1) {
      break;
    }
  }
  if (file != nullptr) {
    std::fclose(file);
  }
  return std::size_t{kib} << 10;
}

/// The budget that the tests' environment sets, and the limit of the process's other memory.
inline constexpr std::size_t kBudget = 64 * kMiB;
inline constexpr std::size_t kOverhead = 64 * kMiB;

}  // namespace tiermem::test

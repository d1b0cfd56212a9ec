// Page-aligned bytes that identify what was written. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace tiermem::contract {

template <typename T>
struct PageAligned {
  using value_type = T;
  static constexpr std::align_val_t kPage{4096};
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kPage)); }
  void deallocate(T* at, std::size_t) noexcept { ::operator delete(at, kPage); }
  friend bool operator==(PageAligned, PageAligned) { return true; }
};
using Block = std::vector<std::byte, PageAligned<std::byte>>;

/// Returns bytes that differ for every seed and every 8 bytes; seed 0: zeros.
inline Block pattern(std::uint64_t bytes, std::uint64_t seed) {
  Block data((bytes + 7) / 8 * 8);
  for (std::uint64_t i = 0; seed != 0 && i < data.size(); i += 8) {
    std::uint64_t word = seed * 0x9e3779b97f4a7c15 + (i + 1) * 0xd6e8feb86659fd93;
    word ^= word >> 32;
    word |= 1;  // No word is zero.
    std::memcpy(data.data() + i, &word, 8);
  }
  data.resize(bytes);
  return data;
}

}  // namespace tiermem::contract

// Random numbers from a seed, the same on every machine (splitmix64).
#pragma once

#include <cstddef>
#include <cstdint>

namespace judge {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x1234567) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  unsigned below(unsigned n) { return static_cast<unsigned>(next() % n); }
  bool chance(unsigned of) { return below(of) == 0; }
  template <typename T, std::size_t n>
  T one_of(const T (&list)[n]) {
    return list[below(n)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace judge

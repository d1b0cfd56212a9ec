// A circular list by index; see lru.hpp.
#include "policy/lru.hpp"

#include <algorithm>
#include <numeric>

namespace tiermem {

Lru::Lru(std::uint32_t blocks, std::uint32_t capacity)
    : end_(blocks),
      room_(std::max(capacity, 1u)),
      prev_(std::size_t{blocks} + 1),
      next_(std::size_t{blocks} + 1) {
  std::iota(prev_.begin(), prev_.end(), 0u);
  std::iota(next_.begin(), next_.end(), 0u);
}

bool Lru::access(std::uint32_t block) {
  const bool hit = next_[block] != block;
  if (hit) {
    unlink(block);
  } else if (room_ > 0) {
    --room_;
  } else {
    unlink(prev_[end_]);
  }
  link_first(block);
  return hit;
}

void Lru::link_first(std::uint32_t block) {
  prev_[block] = end_;
  next_[block] = next_[end_];
  prev_[next_[end_]] = block;
  next_[end_] = block;
}

void Lru::unlink(std::uint32_t block) {
  next_[prev_[block]] = next_[block];
  prev_[next_[block]] = prev_[block];
  prev_[block] = next_[block] = block;
}

}  // namespace tiermem

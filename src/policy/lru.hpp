// Least recently used, for replay: the policy to compare with, and the check that a trace was read
// right (its published hit ratios). Pure; any one thread. The runtime does not use it.
#pragma once

#include <cstdint>
#include <vector>

namespace tiermem {

class Lru {
 public:
  /// A memory of `capacity` blocks, at least 1, out of `blocks`. May throw std::bad_alloc.
  Lru(std::uint32_t blocks, std::uint32_t capacity);
  /// True for a hit. `block` < blocks.
  bool access(std::uint32_t block);

 private:
  void link_first(std::uint32_t block);
  void unlink(std::uint32_t block);

  std::uint32_t end_;  ///< One more than the last block: head and tail of the circular list.
  std::uint32_t room_;
  std::vector<std::uint32_t> prev_, next_;  ///< next_[b] == b: not resident.
};

}  // namespace tiermem

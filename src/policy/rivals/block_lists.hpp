// Several lists over the same numbered blocks; each block is in one list or in none. Most
// replacement rules consist of such lists. For the rivals only. Allocates in its constructor only.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tiermem {

class BlockLists {
 public:
  static constexpr unsigned kNowhere = 0xFF;

  BlockLists(std::uint32_t blocks, unsigned lists)
      : blocks_(blocks),
        prev_(std::size_t{blocks} + lists),
        next_(std::size_t{blocks} + lists),
        where_(blocks, kNowhere),
        size_(lists) {
    // Each list is a ring through its own end element, which comes after the last block.
    std::iota(prev_.begin(), prev_.end(), 0u);
    std::iota(next_.begin(), next_.end(), 0u);
  }

  /// Returns the list that contains a block, or kNowhere.
  unsigned where(std::uint32_t block) const { return where_[block]; }
  std::uint32_t size(unsigned list) const { return size_[list]; }
  /// Only for a list that is not empty.
  std::uint32_t head(unsigned list) const { return next_[blocks_ + list]; }
  std::uint32_t tail(unsigned list) const { return prev_[blocks_ + list]; }
  /// Returns the neighbour on the side of the head; is_end() beyond it.
  std::uint32_t before(std::uint32_t block) const { return prev_[block]; }
  bool is_end(std::uint32_t block) const { return block >= blocks_; }

  /// Moves a block from its list to the head of `list`.
  void to_head(unsigned list, std::uint32_t block) {
    remove(block);
    const std::uint32_t end = blocks_ + list;
    prev_[block] = end;
    next_[block] = next_[end];
    prev_[next_[end]] = block;
    next_[end] = block;
    where_[block] = static_cast<std::uint8_t>(list);
    ++size_[list];
  }
  /// Removes a block from its list, if it is in one.
  void remove(std::uint32_t block) {
    if (where_[block] == kNowhere) {
      return;
    }
    next_[prev_[block]] = next_[block];
    prev_[next_[block]] = prev_[block];
    --size_[where_[block]];
    where_[block] = kNowhere;
  }

 private:
  std::uint32_t blocks_;
  std::vector<std::uint32_t> prev_, next_;
  std::vector<std::uint8_t> where_;
  std::vector<std::uint32_t> size_;
};

}  // namespace tiermem

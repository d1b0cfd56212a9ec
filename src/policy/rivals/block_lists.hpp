// Several lists over the same numbered blocks, each block in one of them or in none: what most
// replacement rules are made of. Of the rivals only; allocates when it is made and never after.
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
    // Each list is a ring through an end of its own, which comes after the last block.
    std::iota(prev_.begin(), prev_.end(), 0u);
    std::iota(next_.begin(), next_.end(), 0u);
  }

  /// The list that a block is in, or kNowhere.
  unsigned where(std::uint32_t block) const { return where_[block]; }
  std::uint32_t size(unsigned list) const { return size_[list]; }
  /// Of a list that is not empty.
  std::uint32_t head(unsigned list) const { return next_[blocks_ + list]; }
  std::uint32_t tail(unsigned list) const { return prev_[blocks_ + list]; }
  /// The neighbour on the side of the head; is_end() beyond it.
  std::uint32_t before(std::uint32_t block) const { return prev_[block]; }
  bool is_end(std::uint32_t block) const { return block >= blocks_; }

  /// Out of where it was, and to the head of `list`.
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
  /// Out of where it was, if it was anywhere.
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

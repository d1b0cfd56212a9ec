// SIEVE (Zhang et al., NSDI 2024): a FIFO in which a hit sets a bit and moves nothing. The hand
// goes from the oldest block to the newest, clears the bits it finds, and evicts the first block
// without one.
#pragma once

#include <vector>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class Sieve : public Rival {
 public:
  Sieve(std::uint32_t blocks, std::uint32_t capacity)
      : queue_(blocks, 1), visited_(blocks), hand_(blocks), capacity_(capacity) {}

  bool access(std::uint32_t block) override {
    if (queue_.where(block) == 0) {
      visited_[block] = 1;
      return true;
    }
    if (queue_.size(0) == capacity_) {
      evict();
    }
    visited_[block] = 0;
    queue_.to_head(0, block);
    return false;
  }

 private:
  void evict() {
    std::uint32_t at = hand_;
    for (;; at = queue_.before(at)) {
      if (queue_.is_end(at)) {
        at = queue_.tail(0);
      }
      if (visited_[at] == 0) {
        break;
      }
      visited_[at] = 0;
    }
    hand_ = queue_.before(at);
    queue_.remove(at);
  }

  BlockLists queue_;
  std::vector<std::uint8_t> visited_;
  std::uint32_t hand_;  ///< The next block to examine, or the end of the queue.
  std::uint32_t capacity_;
};

}  // namespace tiermem

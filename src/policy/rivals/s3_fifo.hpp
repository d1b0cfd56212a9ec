// S3-FIFO (Yang et al., SOSP 2023). It has a small FIFO of a tenth, a main FIFO, and a FIFO of the
// blocks that the small one lost. The main FIFO gives another round to blocks with a hit. Two bits
// count the hits. Two hits in the small queue lead to main, and so does a return from the lost
// blocks.
#pragma once

#include <algorithm>
#include <vector>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class S3Fifo : public Rival {
 public:
  S3Fifo(std::uint32_t blocks, std::uint32_t capacity)
      : lists_(blocks, 3),
        hits_(blocks),
        capacity_(capacity),
        most_small_(std::max(capacity / 10, 1u)),
        most_lost_(capacity - most_small_) {}

  bool access(std::uint32_t block) override {
    const unsigned list = lists_.where(block);
    if (list == kSmall || list == kMain) {
      hits_[block] = static_cast<std::uint8_t>(std::min(hits_[block] + 1, 3));
      return true;
    }
    const bool lost = list == kLost;
    while (lists_.size(kSmall) + lists_.size(kMain) >= capacity_) {
      const bool small_full = lists_.size(kSmall) >= most_small_;
      small_full || lists_.size(kMain) == 0 ? leave_small() : leave_main();
    }
    hits_[block] = 0;
    lists_.to_head(lost ? kMain : kSmall, block);
    return false;
  }

 private:
  enum List { kSmall, kMain, kLost };

  void leave_small() {
    const std::uint32_t block = lists_.tail(kSmall);
    const bool proved = hits_[block] > 1;
    hits_[block] = 0;
    lists_.to_head(proved ? kMain : kLost, block);
    if (lists_.size(kLost) > most_lost_) {
      lists_.remove(lists_.tail(kLost));
    }
  }
  void leave_main() {
    const std::uint32_t block = lists_.tail(kMain);
    if (hits_[block] == 0) {
      lists_.remove(block);
    } else {
      --hits_[block];
      lists_.to_head(kMain, block);
    }
  }

  BlockLists lists_;
  std::vector<std::uint8_t> hits_;
  std::uint32_t capacity_, most_small_, most_lost_;
};

}  // namespace tiermem

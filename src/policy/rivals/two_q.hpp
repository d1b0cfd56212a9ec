// 2Q, the full version (Johnson and Shasha, VLDB 1994), with the recommended sizes. New blocks pass
// through a FIFO. Blocks that are requested again after they left it, while they are remembered,
// enter an LRU list. Hits in the FIFO are one use seen several times and change nothing.
#pragma once

#include <algorithm>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class TwoQ : public Rival {
 public:
  TwoQ(std::uint32_t blocks, std::uint32_t capacity)
      : lists_(blocks, 3),
        capacity_(capacity),
        most_in_(std::max(capacity / 4, 1u)),
        most_out_(std::max(capacity / 2, 1u)) {}

  bool access(std::uint32_t block) override {
    const unsigned list = lists_.where(block);
    if (list == kMain) {
      lists_.to_head(kMain, block);
    }
    if (list == kMain || list == kIn) {
      return true;
    }
    make_room();
    lists_.to_head(list == kOut ? kMain : kIn, block);
    return false;
  }

 private:
  enum List { kIn, kOut, kMain };  // A1in, A1out (remembered, not resident) and Am in the paper.

  void make_room() {
    if (lists_.size(kIn) + lists_.size(kMain) < capacity_) {
      return;
    }
    if (lists_.size(kIn) > most_in_ || lists_.size(kMain) == 0) {
      lists_.to_head(kOut, lists_.tail(kIn));
      if (lists_.size(kOut) > most_out_) {
        lists_.remove(lists_.tail(kOut));
      }
    } else {
      lists_.remove(lists_.tail(kMain));
    }
  }

  BlockLists lists_;
  std::uint32_t capacity_, most_in_, most_out_;
};

}  // namespace tiermem

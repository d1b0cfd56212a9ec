// Least recently used: the standard rule. Its published hit ratios also check that a trace was read
// correctly.
#pragma once

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class Lru : public Rival {
 public:
  Lru(std::uint32_t blocks, std::uint32_t capacity) : order_(blocks, 1), capacity_(capacity) {}
  bool access(std::uint32_t block) override {
    const bool hit = order_.where(block) == 0;
    if (!hit && order_.size(0) == capacity_) {
      order_.remove(order_.tail(0));
    }
    order_.to_head(0, block);
    return hit;
  }

 private:
  BlockLists order_;
  std::uint32_t capacity_;
};

}  // namespace tiermem

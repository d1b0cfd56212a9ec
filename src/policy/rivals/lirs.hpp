// LIRS (Jiang and Zhang, SIGMETRICS 2002). Blocks are ranked by the distance between their last two
// uses. 99 % of the memory holds those with short distances; the rest is a FIFO of the others. A
// block that returns while it is in the stack was absent for less time than the oldest of the
// former, and takes its place. As in the paper, the number of absent blocks in the stack is not
// limited.
#pragma once

#include <algorithm>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class Lirs : public Rival {
 public:
  Lirs(std::uint32_t blocks, std::uint32_t capacity)
      : stack_(blocks, 1),
        residents_(blocks, 2),
        capacity_(capacity),
        most_near_(capacity - std::max(capacity / 100, 1u)) {}

  bool access(std::uint32_t block) override;

 private:
  enum List { kNear, kFar };  // LIR and resident HIR in the paper; only the size of kNear is used.

  void become_near(std::uint32_t block);
  void prune();

  BlockLists stack_;      ///< S in the paper: its last block is always near.
  BlockLists residents_;  ///< The resident blocks; the list of the far ones is the queue Q.
  std::uint32_t capacity_, most_near_;
};

inline bool Lirs::access(std::uint32_t block) {
  const unsigned list = residents_.where(block);
  const bool hit = list != BlockLists::kNowhere;
  const bool remembered = stack_.where(block) == 0;
  if (!hit && residents_.size(kNear) + residents_.size(kFar) == capacity_) {
    residents_.remove(residents_.tail(kFar));
  }
  stack_.to_head(0, block);
  if (list == kNear) {
    prune();
  } else if (most_near_ > 0 && (remembered || residents_.size(kNear) < most_near_)) {
    become_near(block);
  } else {
    residents_.to_head(kFar, block);
    prune();  // A memory without near blocks remembers nothing.
  }
  return hit;
}

inline void Lirs::become_near(std::uint32_t block) {
  residents_.to_head(kNear, block);
  if (residents_.size(kNear) > most_near_) {
    const std::uint32_t farthest = stack_.tail(0);
    stack_.remove(farthest);
    residents_.to_head(kFar, farthest);
  }
  prune();
}

inline void Lirs::prune() {
  while (stack_.size(0) > 0 && residents_.where(stack_.tail(0)) != kNear) {
    stack_.remove(stack_.tail(0));
  }
}

}  // namespace tiermem

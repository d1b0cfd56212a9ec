// ARC, the adaptive replacement cache (Megiddo and Modha, FAST 2003). It has two LRU lists: blocks
// seen once and blocks seen again. Each is followed by a list of the blocks that it lost. A hit on
// a lost block moves the target size of the first list.
#pragma once

#include <algorithm>
#include <cmath>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class Arc : public Rival {
 public:
  Arc(std::uint32_t blocks, std::uint32_t capacity) : lists_(blocks, 4), capacity_(capacity) {}
  bool access(std::uint32_t block) override;

 private:
  // T1, T2, B1 and B2 in the paper.
  enum List { kOnce, kAgain, kLostOnce, kLostAgain };

  double share(List of, List to) const {
    return std::max(1.0, static_cast<double>(lists_.size(of)) / lists_.size(to));
  }
  void replace(bool for_lost_again);
  void forget(List list) { lists_.remove(lists_.tail(list)); }

  BlockLists lists_;
  std::uint32_t capacity_;
  double target_ = 0;  ///< Target for the blocks seen once: p in the paper.
};

/// The four cases of the paper's figure 4.
inline bool Arc::access(std::uint32_t block) {
  const unsigned list = lists_.where(block);
  switch (list) {
    case kOnce:
    case kAgain:
      break;
    case kLostOnce:
      target_ = std::min(target_ + share(kLostAgain, kLostOnce), double{1} * capacity_);
      replace(false);
      break;
    case kLostAgain:
      target_ = std::max(target_ - share(kLostOnce, kLostAgain), 0.0);
      replace(true);
      break;
    default: {
      const std::uint32_t once = lists_.size(kOnce) + lists_.size(kLostOnce);
      const std::uint32_t all = once + lists_.size(kAgain) + lists_.size(kLostAgain);
      if (once == capacity_ && lists_.size(kOnce) == capacity_) {
        forget(kOnce);
      } else if (once == capacity_) {
        forget(kLostOnce);
        replace(false);
      } else if (all >= capacity_) {
        if (all == 2 * std::uint64_t{capacity_}) {
          forget(kLostAgain);
        }
        replace(false);
      }
      lists_.to_head(kOnce, block);
      return false;
    }
  }
  lists_.to_head(kAgain, block);
  return list == kOnce || list == kAgain;
}

inline void Arc::replace(bool for_lost_again) {
  const double once = lists_.size(kOnce);
  const bool from_once =
      once > 0 && (once > target_ || (for_lost_again && once == std::floor(target_)));
  if (from_once || lists_.size(kAgain) == 0) {
    lists_.to_head(kLostOnce, lists_.tail(kOnce));
  } else {
    lists_.to_head(kLostAgain, lists_.tail(kAgain));
  }
}

}  // namespace tiermem

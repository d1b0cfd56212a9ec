// W-TinyLFU (Einziger, Friedman and Manes, ACM ToS 2017). New blocks pass through an LRU window of
// 1 %. A block that leaves the window replaces main's victim only if it was requested more often
// recently. A sketch provides approximate counts, which are halved regularly. Main is a segmented
// LRU, of which 80 % is protected.
#pragma once

#include <algorithm>

#include "policy/rivals/block_lists.hpp"
#include "policy/rivals/frequency_sketch.hpp"
#include "policy/rivals/rival.hpp"

namespace tiermem {

class WTinyLfu : public Rival {
 public:
  WTinyLfu(std::uint32_t blocks, std::uint32_t capacity)
      : lists_(blocks, 3),
        sketch_(capacity),
        most_window_(std::max(capacity / 100, 1u)),
        most_main_(capacity - most_window_),
        most_protected_(static_cast<std::uint32_t>(std::uint64_t{most_main_} * 4 / 5)) {}

  bool access(std::uint32_t block) override;

 private:
  enum List { kWindow, kProbation, kProtected };

  void leave_window(std::uint32_t candidate);

  BlockLists lists_;
  FrequencySketch sketch_;
  std::uint32_t most_window_, most_main_, most_protected_;
};

inline bool WTinyLfu::access(std::uint32_t block) {
  sketch_.add(block);
  switch (lists_.where(block)) {
    case kWindow:
      lists_.to_head(kWindow, block);
      return true;
    case kProbation:
    case kProtected:
      lists_.to_head(kProtected, block);
      if (lists_.size(kProtected) > most_protected_) {
        lists_.to_head(kProbation, lists_.tail(kProtected));
      }
      return true;
    default:
      lists_.to_head(kWindow, block);
      if (lists_.size(kWindow) > most_window_) {
        leave_window(lists_.tail(kWindow));
      }
      return false;
  }
}

inline void WTinyLfu::leave_window(std::uint32_t candidate) {
  const std::uint32_t probation = lists_.size(kProbation);
  if (probation + lists_.size(kProtected) == most_main_) {
    if (most_main_ == 0) {
      lists_.remove(candidate);
      return;
    }
    const std::uint32_t victim = lists_.tail(probation > 0 ? kProbation : kProtected);
    if (sketch_.estimate(candidate) <= sketch_.estimate(victim)) {
      lists_.remove(candidate);
      return;
    }
    lists_.remove(victim);
  }
  lists_.to_head(kProbation, candidate);
}

}  // namespace tiermem

// CLOCK with counters that cool (GCLOCK: Smith, 1978; with one bit: Corbato, 1968). A hit adds one
// to the block's counter, up to `hottest`. The clock hand subtracts one from each counter that it
// passes, and evicts the first block with a counter of zero.
#pragma once

#include <algorithm>
#include <vector>

#include "policy/rivals/rival.hpp"

namespace tiermem {

class Clock : public Rival {
 public:
  Clock(std::uint32_t blocks, std::uint32_t capacity, unsigned hottest)
      : frames_(capacity), frame_of_(blocks, kAbsent), hottest_(hottest) {}
  bool access(std::uint32_t block) override;

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};
  struct Frame {
    std::uint32_t block = kAbsent;
    unsigned heat = 0;
  };
  void advance() { hand_ = hand_ + 1 == frames_.size() ? 0 : hand_ + 1; }

  std::vector<Frame> frames_;
  std::vector<std::uint32_t> frame_of_;  ///< By block, or kAbsent.
  unsigned hottest_;
  /// The next frame to examine; while the memory fills, the first free frame.
  std::uint32_t hand_ = 0;
};

inline bool Clock::access(std::uint32_t block) {
  if (frame_of_[block] != kAbsent) {
    unsigned& heat = frames_[frame_of_[block]].heat;
    heat = std::min(heat + 1, hottest_);
    return true;
  }
  for (; frames_[hand_].heat > 0; advance()) {
    --frames_[hand_].heat;
  }
  if (frames_[hand_].block != kAbsent) {
    frame_of_[frames_[hand_].block] = kAbsent;
  }
  frames_[hand_] = {block, 0};
  frame_of_[block] = hand_;
  advance();
  return false;
}

}  // namespace tiermem

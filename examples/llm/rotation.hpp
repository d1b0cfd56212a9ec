// Rotation: rotary position embedding (RoPE) of one base, tabulated for the positions of a run.
// Constant after construction; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace llm {

class Rotation {
 public:
  Rotation(float base, std::size_t head_width, std::size_t positions);
  /// Turns element i against element i + width/2, by the angle of `position` and i.
  void turn(std::span<float> head, std::size_t position) const noexcept;

 private:
  std::size_t half_;
  std::vector<float> cosines_, sines_;  // [position][i]
};

}  // namespace llm

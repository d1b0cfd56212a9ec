// Computes angles in double: at position 30,000 a float's angle would be wrong by a thousandth of a
// turn.
#include "rotation.hpp"

#include <cmath>

namespace llm {

Rotation::Rotation(float base, std::size_t head_width, std::size_t positions)
    : half_(head_width / 2) {
  cosines_.reserve(positions * half_);
  sines_.reserve(positions * half_);
  for (std::size_t position = 0; position < positions; ++position) {
    for (std::size_t i = 0; i < half_; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(half_);
      const double angle = static_cast<double>(position) * std::pow(base, -exponent);
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void Rotation::turn(std::span<float> head, std::size_t position) const noexcept {
  const float* cosine = cosines_.data() + position * half_;
  const float* sine = sines_.data() + position * half_;
  for (std::size_t i = 0; i < half_; ++i) {
    const float a = head[i];
    const float b = head[i + half_];
    head[i] = a * cosine[i] - b * sine[i];
    head[i + half_] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace llm

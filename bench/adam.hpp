// One step of Adam on one element, in single precision, with each operation rounded separately:
// exactly the kernel of gpu_oversubscribe (adam_kernel.cpp), bit for bit. Code that includes this
// header must be compiled with -ffp-contract=off; otherwise the compiler may fuse a multiplication
// and an addition.
#pragma once

#include <cmath>

namespace tiermem::bench {

struct Adam {
  static constexpr float kDecay1 = 0.9F, kRest1 = 0.1F;
  static constexpr float kDecay2 = 0.999F, kRest2 = 0.001F;
  static constexpr float kSmallest = 1e-8F;

  float parameter = 0, first = 0, second = 0;

  void step(float gradient, float rate) {
    first = first * kDecay1 + gradient * kRest1;
    second = second * kDecay2 + gradient * gradient * kRest2;
    parameter = parameter - first * rate / (std::sqrt(second) + kSmallest);
  }
};

/// The element's value before the first step; both moments are 0. Any element number is valid.
inline float first_parameter(unsigned long long element) {
  const unsigned long long mixed = (element + 1) * 0x9e3779b97f4a7c15ULL;
  return static_cast<float>(static_cast<long long>(mixed >> 41) - (1LL << 22)) / (1LL << 22);
}
inline float gradient_of(unsigned long long element) {
  const unsigned long long mixed = (element + 7) * 0xd1342543de82ef95ULL;
  return static_cast<float>(static_cast<long long>(mixed >> 41) - (1LL << 22)) / (1LL << 25);
}

}  // namespace tiermem::bench

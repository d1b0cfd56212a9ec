// Kernels: the arithmetic of the network on rows of f16 weights and f32 activations. Any thread, no
// state. Every dot product adds in one order that depends on its length alone: 32 partial sums
// (element i goes to sum i mod 32, by fused multiply-add), then a fixed tree. So the result is the
// same to the last bit for every source of weights, number of threads and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace llm {

/// A weight as stored in the file: the bits of an IEEE 754 binary16.
using f16 = std::uint16_t;

float to_float(f16 weight) noexcept;

/// Σ row[i] · x[i]. `row` needs no alignment beyond its own 2 bytes.
using Dot = float (*)(const f16* row, const float* x, std::size_t n) noexcept;

/// Returns the kernel of that name ("avx512", "avx2", "portable"), or the best one for "auto".
/// nullptr if this CPU cannot run it, or the name is unknown.
Dot dot_kernel(std::string_view name) noexcept;
/// The name behind "auto" on this CPU.
std::string_view best_kernel() noexcept;

/// to = x / rms(x) · weight; `to` may be x.
void rms_norm(std::span<const float> x, const f16* weight, float epsilon, float* to) noexcept;
/// gate = gelu(gate) · up, with the tanh form of GELU.
void geglu(std::span<float> gate, const float* up) noexcept;
/// x becomes its softmax.
void softmax(std::span<float> x) noexcept;

}  // namespace llm

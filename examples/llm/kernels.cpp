// Dot products of f16 rows in three instruction sets, chosen at run time; the file itself is
// compiled for the baseline. Estimate for one core: 1.25 weights a cycle are 8 GB/s at 3.2 GHz;
// AVX2 converts and multiplies 4 a cycle, so memory is the limit, not this file.
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace llm {
namespace {

constexpr std::size_t kSums = 32;

// The fixed tree: sum i takes sum i + half, until one is left. The counts are constants, so that
// the compiler adds vectors.
template <std::size_t half = kSums / 2>
float fold(float* sums) noexcept {
  for (std::size_t i = 0; i < half; ++i) {
    sums[i] += sums[i + half];
  }
  if constexpr (half == 1) {
    return sums[0];
  } else {
    return fold<half / 2>(sums);
  }
}

// The last n mod 32 elements, the same for all instruction sets.
float finish(std::array<float, kSums>& sums, const f16* row, const float* x, std::size_t from,
             std::size_t n) noexcept {
  for (std::size_t i = from; i < n; ++i) {
    sums[i % kSums] = std::fma(to_float(row[i]), x[i], sums[i % kSums]);
  }
  return fold(sums.data());
}

float dot_portable(const f16* row, const float* x, std::size_t n) noexcept {
  std::array<float, kSums> sums{};
  return finish(sums, row, x, 0, n);
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma,f16c"))) float dot_avx2(const f16* row, const float* x,
                                                        std::size_t n) noexcept {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
  std::size_t i = 0;
  const auto weights = [&](std::size_t at) __attribute__((target("avx2,fma,f16c"))) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at)));
  };
  for (; i + kSums <= n; i += kSums) {
    a = _mm256_fmadd_ps(weights(i), _mm256_loadu_ps(x + i), a);
    b = _mm256_fmadd_ps(weights(i + 8), _mm256_loadu_ps(x + i + 8), b);
    c = _mm256_fmadd_ps(weights(i + 16), _mm256_loadu_ps(x + i + 16), c);
    d = _mm256_fmadd_ps(weights(i + 24), _mm256_loadu_ps(x + i + 24), d);
  }
  std::array<float, kSums> sums;
  _mm256_storeu_ps(sums.data(), a);
  _mm256_storeu_ps(sums.data() + 8, b);
  _mm256_storeu_ps(sums.data() + 16, c);
  _mm256_storeu_ps(sums.data() + 24, d);
  return finish(sums, row, x, i, n);
}

// The maskz form with all lanes on is the plain conversion. gcc 12 warns about the plain
// intrinsic's undefined source.
__attribute__((target("avx512f"))) float dot_avx512(const f16* row, const float* x,
                                                    std::size_t n) noexcept {
  __m512 a = _mm512_setzero_ps(), b = a;
  std::size_t i = 0;
  const auto weights = [&](std::size_t at) __attribute__((target("avx512f"))) {
    const __m256i* bits = reinterpret_cast<const __m256i*>(row + at);
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(bits));
  };
  for (; i + kSums <= n; i += kSums) {
    a = _mm512_fmadd_ps(weights(i), _mm512_loadu_ps(x + i), a);
    b = _mm512_fmadd_ps(weights(i + 16), _mm512_loadu_ps(x + i + 16), b);
  }
  std::array<float, kSums> sums;
  _mm512_storeu_ps(sums.data(), a);
  _mm512_storeu_ps(sums.data() + 16, b);
  return finish(sums, row, x, i, n);
}

bool has_avx2() noexcept {
  // clang 14 does not know f16c by name, so this tests the bit directly.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f");
}

#endif

}  // namespace

float to_float(f16 weight) noexcept {
  const std::uint32_t sign = (weight & 0x8000u) << 16;
  const std::uint32_t exponent = weight >> 10 & 0x1fu;
  const std::uint32_t fraction = weight & 0x3ffu;
  if (exponent == 0) {  // Zero or subnormal: fraction × 2^-24, exact in a float.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t widened = exponent == 31 ? 255 : exponent + 112;  // 112 = 127 - 15.
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

std::string_view best_kernel() noexcept {
#if defined(__x86_64__)
  if (has_avx512()) {
    return "avx512";
  }
  if (has_avx2()) {
    return "avx2";
  }
#endif
  return "portable";
}

Dot dot_kernel(std::string_view name) noexcept {
  if (name == "auto") {
    name = best_kernel();
  }
#if defined(__x86_64__)
  if (name == "avx512" && has_avx512()) {
    return dot_avx512;
  }
  if (name == "avx2" && has_avx2()) {
    return dot_avx2;
  }
#endif
  return name == "portable" ? dot_portable : nullptr;
}

void rms_norm(std::span<const float> x, const f16* weight, float epsilon, float* to) noexcept {
  double squares = 0;
  for (float value : x) {
    squares += static_cast<double>(value) * value;
  }
  const auto mean = static_cast<float>(squares / static_cast<double>(x.size()));
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (std::size_t i = 0; i < x.size(); ++i) {
    to[i] = x[i] * scale * to_float(weight[i]);
  }
}

void geglu(std::span<float> gate, const float* up) noexcept {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const float g = gate[i];
    gate[i] = 0.5f * g * (1.0f + std::tanh(kRoot * (g + 0.044715f * g * g * g))) * up[i];
  }
}

void softmax(std::span<float> x) noexcept {
  const float largest = *std::max_element(x.begin(), x.end());
  float sum = 0;
  for (float& value : x) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (float& value : x) {
    value /= sum;
  }
}

}  // namespace llm

// Checked arithmetic for sizes, offsets, counts and alignments that come from a caller. Each such
// number is checked once, where it enters tiermem; later code uses plain arithmetic. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace tiermem {

/// Returns `value` as a To, or nothing if To cannot represent it.
template <std::integral To, std::integral From>
constexpr std::optional<To> narrow(From value) noexcept {
  return std::in_range<To>(value) ? std::optional<To>(static_cast<To>(value)) : std::nullopt;
}

/// Returns `value` as a To, or the nearest To if To cannot represent it.
template <std::integral To, std::integral From>
constexpr To saturate(From value) noexcept {
  if (std::in_range<To>(value)) {
    return static_cast<To>(value);
  }
  return std::cmp_less(value, std::numeric_limits<To>::min()) ? std::numeric_limits<To>::min()
                                                              : std::numeric_limits<To>::max();
}

/// Returns the sum, or nothing on overflow.
template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T sum{};
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional<T>(sum);
}

/// Returns the product, or nothing on overflow.
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  T product{};
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional<T>(product);
}

/// Returns the sum, or the largest T on overflow.
template <std::unsigned_integral T>
constexpr T saturating_add(T a, T b) noexcept {
  return checked_add(a, b).value_or(std::numeric_limits<T>::max());
}

/// Returns the product, or the largest T on overflow.
template <std::unsigned_integral T>
constexpr T saturating_mul(T a, T b) noexcept {
  return checked_mul(a, b).value_or(std::numeric_limits<T>::max());
}

/// Rounds `value` up to a multiple of `unit`. Returns nothing if the result is 2^64 or more, or if
/// `unit` is 0.
constexpr std::optional<std::uint64_t> checked_round_up(std::uint64_t value,
                                                        std::uint64_t unit) noexcept {
  if (unit == 0) {
    return std::nullopt;
  }
  return checked_mul<std::uint64_t>(value / unit + (value % unit != 0 ? 1 : 0), unit);
}

/// Rounds `value`, a checked number, up to a multiple of `unit`. The caller guarantees that the
/// result is below 2^64 and that `unit` is not 0.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// Returns whether [offset, offset + length) is inside [0, bytes). An empty range at `bytes` is
/// inside.
constexpr bool in_range(std::uint64_t offset, std::uint64_t length, std::uint64_t bytes) noexcept {
  return offset <= bytes && length <= bytes - offset;
}

}  // namespace tiermem

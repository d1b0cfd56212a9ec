// The table of what system calls read and write through their pointers. Constant; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

enum class Way : std::uint8_t {
  none,
  in,  ///< The kernel reads it.
  /// The kernel may write all or a part of it. The bytes are copied in first, so that they survive.
  both,
  text,   ///< Ends with a zero byte.
  fills,  ///< The kernel writes as many units as the result says.
  sized,  ///< As `both`; another argument points to its size in bytes.
};

inline constexpr std::uint8_t kOnce = 0xFF;

/// `unit` bytes, once or as often as argument `count` says. For `sized`, up to `unit` bytes.
struct Pointer {
  std::uint8_t argument = 0;
  Way way = Way::none;
  std::uint16_t unit = 0;
  std::uint8_t count = kOnce;
};

struct Shape {
  std::array<Pointer, 5> pointers{};
};

/// Returns null for a call that has no line in the table.
const Shape* shape_of(long number);

inline constexpr long kNumbers = 512;      ///< System call numbers are below this.
inline constexpr unsigned kArguments = 6;  ///< Maximum for one call.
/// Returns how many arguments, from the first, the filter checks for addresses of regions. These
/// end with the last pointer that the kernel follows. Later registers may hold anything: when the
/// loader calls `access`, the third register holds the processor's clock.
unsigned addresses_of(long number);

/// Whether its pointers lead to more pointers: those of an iovec or a msghdr.
bool has_vectors(long number);
bool has_message(long number);

}  // namespace tiermem::preload

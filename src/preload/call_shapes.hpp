// What system calls read and write through their pointers: the table. Constant; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

enum class Way : std::uint8_t {
  none,
  in,     ///< The kernel reads it.
  both,   ///< The kernel writes it, or a part of it, or not: it goes in, so that it can come back.
  text,   ///< Ends with a zero byte.
  fills,  ///< The kernel writes as many units as the result says.
  sized,  ///< As `both`, with its size in bytes where another argument points.
};

inline constexpr std::uint8_t kOnce = 0xFF;

/// `unit` bytes, once or as often as argument `count` says; of `sized`, `unit` at most.
struct Pointer {
  std::uint8_t argument = 0;
  Way way = Way::none;
  std::uint16_t unit = 0;
  std::uint8_t count = kOnce;
};

struct Shape {
  std::array<Pointer, 5> pointers{};
};

/// Null: nothing is known of it.
const Shape* shape_of(long number);

inline constexpr long kNumbers = 512;  ///< Of system calls: none is above.
inline constexpr unsigned kFew = 3;
/// Is any of the arguments from the fourth on a pointer? In other calls these are not looked at:
/// the registers of arguments that a call has not got may hold anything.
bool has_far_pointers(long number);

}  // namespace tiermem::preload

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

inline constexpr long kNumbers = 512;      ///< Of system calls: none is above.
inline constexpr unsigned kArguments = 6;  ///< Of one call, at most.
/// How many arguments, from the first on, are looked at for addresses of regions: to the last one
/// whose target the kernel touches. The registers behind it may hold anything: where the loader
/// asks for `access`, the third holds the processor's clock.
unsigned addresses_of(long number);

/// Are there pointers behind its pointers: those of an iovec or a msghdr?
bool has_vectors(long number);
bool has_message(long number);

}  // namespace tiermem::preload

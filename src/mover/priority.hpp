// The order in which transfers go to a slot tier.
#pragma once

#include <cstdint>

namespace tiermem {

/// The lowest value goes first. No request waits for a transfer above `room`.
enum class Priority : std::uint8_t { demand, room, prefetch, background };
inline constexpr unsigned kPriorities = 4;

}  // namespace tiermem

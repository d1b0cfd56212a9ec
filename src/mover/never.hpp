// The time of a wake-up that only an event brings.
#pragma once

#include <cstdint>

namespace tiermem {

inline constexpr std::int64_t kNever = INT64_MAX;

}  // namespace tiermem

// Copies of large ranges from memory to memory, past the caches of the processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiermem::host {

/// From this size on copy_large() bypasses the caches.
inline constexpr std::uint64_t kLeastPastCaches = std::uint64_t{256} << 10;

/// Copies `bytes` to a range that does not overlap the source. The bytes of large ranges are in no
/// cache afterwards, so it is for bytes that are not read soon. When it returns, all bytes are
/// stored in the order of the calling thread. Any thread.
void copy_large(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept;

}  // namespace tiermem::host

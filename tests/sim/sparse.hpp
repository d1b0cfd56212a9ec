// Buffers of more than 2^20 extents, with touches of a few: extent numbers and offsets that need
// more than 20, 32 and 36 bits. No faults. One thread, virtual time.
#pragma once

#include <cstdint>

namespace tiermem::sim {

/// Throws on a violation: bytes that are not the newest, wrong records, a request that never ends.
void touch_sparse_buffer(std::uint64_t seed);

}  // namespace tiermem::sim

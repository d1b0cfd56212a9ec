// Buffers of more than 2^20 extents, of which a few are touched: numbers of extents and offsets
// that need more than 20, 32 and 36 bits. No faults. One thread, virtual time.
#pragma once

#include <cstdint>

namespace tiermem::sim {

/// Throws what goes wrong: bytes that are not the newest, broken books, a request without end.
void touch_sparse_buffer(std::uint64_t seed);

}  // namespace tiermem::sim

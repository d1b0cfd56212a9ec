// Prefetches that nobody waits for: what is read ahead.
#pragma once

#include <memory>

#include "mover/request.hpp"

namespace tiermem {

/// To be given to the mover, and gone when it is done. Null where there is nothing to bring, as of
/// a buffer that was freed, or no memory for a request.
std::unique_ptr<Request> prefetch_of(Residency& residency, const Access& access);
/// Of a buffer's extents [first, first + count), as far as it has bytes there.
std::unique_ptr<Request> prefetch_of(Residency& residency, Handle buffer, std::uint32_t first,
                                     std::uint32_t count);

}  // namespace tiermem

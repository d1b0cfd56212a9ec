// Prefetches without a waiter: read-ahead.
#pragma once

#include <memory>

#include "mover/request.hpp"

namespace tiermem {

/// Makes a request for the mover, which deletes itself when it is done. Returns null if a prefetch
/// has no effect, for example after the buffer was freed, or if a request cannot be allocated.
std::unique_ptr<Request> prefetch_of(Residency& residency, const Access& access);
/// The same for the buffer's extents [first, first + count), without those past its end.
std::unique_ptr<Request> prefetch_of(Residency& residency, Handle buffer, std::uint32_t first,
                                     std::uint32_t count);

}  // namespace tiermem

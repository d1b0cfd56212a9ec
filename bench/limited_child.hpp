// A piece of a benchmark in a child process whose memory, page cache included, is limited by a
// memory cgroup of its own (version 1 or 2, whichever has the memory controller). The cgroup is
// removed afterwards. One thread.
#pragma once

#include <cstdint>
#include <functional>

#include "bench/harness.hpp"

namespace tiermem::bench {

/// Runs `part` in the child and passes its value on. `part` must not use contexts of this process:
/// the child has none of their threads. Errors: unavailable where no cgroup can be made; internal
/// when the child ended otherwise.
Result<Sample> in_limited_child(std::uint64_t bytes, const std::function<double()>& part);

}  // namespace tiermem::bench

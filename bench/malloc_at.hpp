// Small objects by pointer in any memory of the host, beside other allocators. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/allocators.hpp"
#include "bench/core.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

/// Objects that are created before the first is freed, in the rows `..._by_1000`.
inline constexpr std::size_t kMallocBatch = 1000;

/// Adds a row: objects of 64 bytes in `place`, `batch` at a time, beside the best of `others`.
Status compare_malloc_at(Session& session, Context& context, Place place, const std::string& name,
                         std::size_t batch, double bar, const std::vector<Allocator>& others);

}  // namespace tiermem::bench

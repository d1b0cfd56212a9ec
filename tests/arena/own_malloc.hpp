// This program's own malloc. It sees every allocation of the process, and can refuse some. For one
// test at a time. The test's thread is the one that calls begin_counting() or
// grant_to_other_threads(); all other threads are tiermem's.
#pragma once

#include <cstdint>

namespace tiermem::test {

/// Starts to count tiermem's allocations: on its threads, and on this thread inside InCall.
void begin_counting();
/// Stops counting, and prints the first strays. Returns the number of strays: allocations without
/// the mark by which an interposed malloc recognises tiermem.
std::uint64_t end_counting();
/// Returns the number of marked allocations since begin_counting().
std::uint64_t counted_inside();

/// During its life, all work of this thread counts as tiermem's. Does not nest.
struct InCall {
  InCall();
  ~InCall();
};

inline constexpr std::uint64_t kAll = ~std::uint64_t{0};
/// Tiermem's own threads get `n` more allocations, and then none.
void grant_to_other_threads(std::uint64_t n);
/// Returns the number of allocations that were refused to them since.
std::uint64_t refused_to_other_threads();

}  // namespace tiermem::test

// This program's own malloc, which sees every allocation of the process and may refuse some. For
// one test at a time; the test's thread is whichever calls begin_counting() or
// grant_to_other_threads(), all others are tiermem's.
#pragma once

#include <cstdint>

namespace tiermem::test {

/// From now on allocations of tiermem are counted: on its threads, and on this one inside InCall.
void begin_counting();
/// How many of these were strays, made without the mark by which an interposed malloc recognises
/// tiermem; the first are shown.
std::uint64_t end_counting();
/// How many since begin_counting() had the mark.
std::uint64_t counted_inside();

/// What this thread does in its life is tiermem's doing. Does not nest.
struct InCall {
  InCall();
  ~InCall();
};

inline constexpr std::uint64_t kAll = ~std::uint64_t{0};
/// tiermem's own threads get so many allocations more, and then none for good.
void grant_to_other_threads(std::uint64_t n);
/// How many they were refused since.
std::uint64_t refused_to_other_threads();

}  // namespace tiermem::test

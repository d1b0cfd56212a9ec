// Makes the calls of sequences in this process, and tells what a program can see of them.
#pragma once

#include <cstdint>

#include "sequence.hpp"

namespace judge {

/// In the environment of programs that are run with a sanitizer's runtime.
inline constexpr const char* kRuntimeVariable = "JUDGE_RUNTIME";

struct RunOptions {
  std::uint64_t first = 0;
  std::uint64_t sequences = 1;
  unsigned calls = 100;
  bool plain = false;    ///< Not under the preload library: addresses may be chosen.
  bool verbose = false;  ///< A line for each call and each page, instead of one for each sequence.
  const char* left_out = "";  ///< Of one sequence: calls by number, separated by commas.
  const char* folder = ".";   ///< For files.
};

/// The sequence without the calls that are left out.
Sequence sequence_of(const RunOptions& options, std::uint64_t seed);

/// Writes to standard output. Exit status: 0; 3: not tiered, although it should be; 4: no files.
int run(const RunOptions& options);

}  // namespace judge

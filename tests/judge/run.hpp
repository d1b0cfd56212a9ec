// Makes the calls of sequences in this process, and reports what a program can see of them.
#pragma once

#include <cstdint>

#include "sequence.hpp"

namespace judge {

/// Set in the environment of programs that run with a sanitizer's runtime.
inline constexpr const char* kRuntimeVariable = "JUDGE_RUNTIME";

struct RunOptions {
  std::uint64_t first = 0;
  std::uint64_t sequences = 1;
  unsigned calls = 100;
  bool plain = false;  ///< Not under the preload library, so addresses can be chosen.
  /// Prints a line for each call and each page, instead of one for each sequence.
  bool verbose = false;
  const char* left_out = "";  ///< Calls to leave out of one sequence: numbers, separated by commas.
  const char* folder = ".";   ///< The folder for files.
};

/// Returns the sequence without the calls that are left out.
Sequence sequence_of(const RunOptions& options, std::uint64_t seed);

/// Writes to standard output. Returns the exit status: 0; 3: not tiered, although it should be; 4:
/// no files.
int run(const RunOptions& options);

}  // namespace judge

// Failure: what ends this program early, with the exit status that says whose problem it is.
// Thrown by any part of the example, caught in main only.
#pragma once

#include <stdexcept>
#include <string>

namespace llm {

/// Exit statuses of example_llm; 0 is success.
enum class Exit : int {
  usage = 2,   ///< Options that cannot be met: fix the command line.
  files = 3,   ///< A file is missing, damaged or of another model: run prepare.
  memory = 4,  ///< The weight source failed: memory, mmap or tiermem refused.
};

class Failure : public std::runtime_error {
 public:
  Failure(Exit status, const std::string& sentence)
      : std::runtime_error(sentence), status_(status) {}
  int status() const noexcept { return static_cast<int>(status_); }

 private:
  Exit status_;
};

}  // namespace llm

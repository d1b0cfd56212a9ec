// Failure: an error that ends this program early, with an exit status for its cause. Any part of
// the example may throw it; only main catches it.
#pragma once

#include <stdexcept>
#include <string>

namespace llm {

/// Exit statuses of example_llm; 0 is success.
enum class Exit : int {
  usage = 2,   ///< Wrong options: fix the command line.
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

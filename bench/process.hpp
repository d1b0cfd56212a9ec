// Other programs: run to their end, with their output (git, fio), or kept running (servers). Any
// thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace tiermem::bench {

struct Output {
  int exit_code = -1;  ///< 127: the program does not exist; -1: it could not be started or was
                       ///< killed.
  std::string text;    ///< Its standard output.
};

/// Waits for its end. Uses no shell; standard error is discarded.
Output run_program(const std::vector<std::string>& arguments);

/// A program that runs beside this one without output, and ends with it at the latest.
class Running {
 public:
  /// Null if no more processes can be created. A missing program ends at once.
  static std::unique_ptr<Running> start(const std::vector<std::string>& arguments);
  /// Ends it with SIGTERM, and with SIGKILL ten seconds later.
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  explicit Running(pid_t child) : child_(child) {}
  const pid_t child_;
};

}  // namespace tiermem::bench

// Other programs: run to their end, with what they print (git, fio), or kept while they are needed
// (servers). Any thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace tiermem::bench {

struct Output {
  int exit_code =
      -1;            ///< 127: there is no such program; -1: it could not be started or was killed.
  std::string text;  ///< Its standard output.
};

/// Waits for its end. No shell is involved; standard error goes nowhere.
Output run_program(const std::vector<std::string>& arguments);

/// A program that runs beside this one, its output going nowhere, and ends with it at the latest.
class Running {
 public:
  /// Null when there can be no more processes. A program that is not there ends at once.
  static std::unique_ptr<Running> start(const std::vector<std::string>& arguments);
  /// Ends it by SIGTERM, and by SIGKILL ten seconds later.
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  explicit Running(pid_t child) : child_(child) {}
  const pid_t child_;
};

}  // namespace tiermem::bench

// Runs another program and keeps what it prints: git and fio. Blocks; any thread.
#pragma once

#include <string>
#include <vector>

namespace tiermem::bench {

struct Output {
  int exit_code =
      -1;            ///< 127: there is no such program; -1: it could not be started or was killed.
  std::string text;  ///< Its standard output.
};

/// No shell is involved; standard error goes nowhere.
Output run_program(const std::vector<std::string>& arguments);

}  // namespace tiermem::bench

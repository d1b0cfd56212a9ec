// What the commands of the program share: exit codes, how an error is shown, and the functions that
// add each command to the command line. main.cpp calls them from the one thread there is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Documented in the help; scripts depend on them.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  ///< It was tried and went wrong, or a check failed.
  kUsage = 2,   ///< The command line, or an option, is wrong.
  kCannot = 3,  ///< This machine lacks what it takes.
};

/// What a failure means to a script: which exit code.
ExitCode exit_code(const Status& status);
/// Prints "tiermem: <sentence>" to stderr; returns the exit code.
int complain(const Status& status);
int complain(ExitCode code, std::string_view sentence);

/// The part of every help that is the same.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not possible on this machine.";

/// Each adds one command; the command's code ends in `exit`.
void add_topo(CLI::App& program, int& exit);
void add_tune(CLI::App& program, int& exit);
void add_replay(CLI::App& program, int& exit);
void add_bench(CLI::App& program, int& exit);
void add_why(CLI::App& program, int& exit);
/// `after_dashes` is what followed "--" on the command line: a program and its arguments, as they
/// were written.
void add_run(CLI::App& program, const std::vector<std::string>& after_dashes, int& exit);

}  // namespace tiermem::cli

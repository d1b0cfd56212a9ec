// The program that `tiermem run` starts: fork, exec, signals in between, its end. Called by the
// main thread, which has no other threads when it calls. Touches no descriptor of the program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "preload/run_page.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

struct ChildOptions {
  std::vector<std::string> arguments;  ///< The program first, looked for as execvp does.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Set in the child.
  int tick_ms = -1;                                              ///< -1: no ticks.
  std::function<void()> tick;
  /// Called about once a second with the program's number; less often where it takes longer than a
  /// hundredth of that.
  std::function<void(pid_t)> look;
  int broker = -1;              ///< Readable when serve() is to be called. -1: never.
  std::function<void()> serve;  ///< Answers one process of the run.
};

/// Runs it to its end and returns its wait status. Passes on the signals that a process sends to
/// this one; those of a terminal reach the program by themselves. Stops when the program stops by
/// job control. Meanwhile `host` learns at once of processes that end. Errors: io_error when no
/// process can be made.
Result<int> run_child(const ChildOptions& options, RunHost& host);

/// The exit code for a wait status. Does not return when the program died by a signal: then this
/// process dies by the same one, without a core of its own.
int end_as(int status);
/// As a shell shows it: 128 and the number of the signal for one that was killed.
int shell_status(int status);

}  // namespace tiermem::cli

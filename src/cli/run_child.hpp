// The program that `tiermem run` starts: fork, exec, signals, and its end. Called by the main
// thread while there are no other threads. Touches no descriptor of the program.
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
  std::vector<std::string> arguments;  ///< The program comes first; it is looked up as execvp does.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Set in the child.
  int tick_ms = -1;                                              ///< -1: no ticks.
  std::function<void()> tick;
  /// Called about once a second with the program's pid; less often if it takes more than a
  /// hundredth of that time.
  std::function<void(pid_t)> look;
  int broker = -1;              ///< Readable when serve() must be called. -1: never.
  std::function<void()> serve;  ///< Answers one process of the run.
};

/// Runs the program to its end and returns its wait status. Passes on signals that a process sends
/// to this one; a terminal's signals reach the program directly. Stops when the program stops by
/// job control. `host` learns at once of processes that end. Errors: io_error if no process can be
/// created.
Result<int> run_child(const ChildOptions& options, RunHost& host);

/// Returns the exit code for a wait status. Does not return if a signal killed the program: this
/// process then dies by the same signal, without a core of its own.
int end_as(int status);
/// The status as a shell shows it: 128 plus the signal's number for a killed process.
int shell_status(int status);

}  // namespace tiermem::cli

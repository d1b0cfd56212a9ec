// The common parts of the program's commands: exit codes, errors, the manual text beside the
// options, and the functions that add each command to the command line. main.cpp calls them from
// its only thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Documented in the help and in the manual pages; scripts depend on them.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  ///< It was tried and failed, or a check failed.
  kUsage = 2,   ///< The command line, or an option, is wrong.
  kCannot = 3,  ///< This machine lacks a requirement.
};

/// Returns the exit code for a failure.
ExitCode exit_code(const Status& status);
/// Prints "tiermem: <sentence>" to stderr; returns the exit code.
int complain(const Status& status);
int complain(ExitCode code, std::string_view sentence);

/// A term of a list in a manual page, with its explanation.
struct Entry {
  std::string term;
  std::string text;
};

/// The parts of a command's help and manual page beside its options.
struct Manual {
  std::string operands;  ///< After the options in the synopsis; empty: the command's own operands.
  std::vector<std::string> description;  ///< Paragraphs.
  std::vector<Entry> statuses;           ///< Exit statuses besides those of every command.
  /// Names of variables that the command reads; tables have their texts.
  std::vector<std::string> variables;
  std::vector<Entry> files;
  std::vector<Entry> examples;          ///< Command lines.
  std::vector<std::string> see_also{};  ///< "cgroups(7)"
};

/// A command of the program, or the program itself.
class Command : public CLI::App {
 public:
  Command(std::string about, std::string name);
  Manual manual;
};

/// `command` is an object from add_command(), or the program.
const Manual& manual_of(const CLI::App& command);
/// `about` begins with an imperative and has no full stop.
Command* add_command(CLI::App& program, std::string name, std::string about);

/// Adds the option --json to a command. It sets `path`; "-" if the file name is omitted.
void add_json(CLI::App& command, std::string& path);

/// Each function adds one command; the command stores its exit code in `exit`.
void add_topo(CLI::App& program, int& exit);
void add_tune(CLI::App& program, int& exit);
void add_replay(CLI::App& program, int& exit);
void add_bench(CLI::App& program, int& exit);
void add_why(CLI::App& program, int& exit);
/// `after_dashes` is the text after "--" on the command line: a program and its arguments,
/// unchanged.
void add_run(CLI::App& program, const std::vector<std::string>& after_dashes, int& exit);
/// Adds `completion` and `help`, and a build command that writes the manual pages. Call it last:
/// `help` lists the other commands.
void add_completion(CLI::App& program, int& exit);
void add_help(CLI::App& program, int& exit);
void add_generate(CLI::App& program, int& exit);

}  // namespace tiermem::cli

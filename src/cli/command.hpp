// What the commands of the program share: exit codes, how an error is shown, what a command's
// manual page has besides its options, and the functions that add each command to the command line.
// main.cpp calls them from the one thread there is.
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
  kFailed = 1,  ///< It was tried and went wrong, or a check failed.
  kUsage = 2,   ///< The command line, or an option, is wrong.
  kCannot = 3,  ///< This machine lacks what it takes.
};

/// What a failure means to a script: which exit code.
ExitCode exit_code(const Status& status);
/// Prints "tiermem: <sentence>" to stderr; returns the exit code.
int complain(const Status& status);
int complain(ExitCode code, std::string_view sentence);

/// A term of a list in a manual page, and the sentences about it.
struct Entry {
  std::string term;
  std::string text;
};

/// The parts of a command's help and manual page that its options do not tell.
struct Manual {
  std::string operands;  ///< After the options in the synopsis; empty: the command's own operands.
  std::vector<std::string> description;  ///< Paragraphs.
  std::vector<Entry> statuses;           ///< Exit statuses besides those of every command.
  std::vector<std::string> variables;    ///< Names that the command reads; the texts are in tables.
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

/// The same object as what add_command() returned, or the program.
const Manual& manual_of(const CLI::App& command);
/// `about` begins with an imperative and has no full stop.
Command* add_command(CLI::App& program, std::string name, std::string about);

/// The option --json of a command, which fills `path`: "-" where no file is named.
void add_json(CLI::App& command, std::string& path);

/// Each adds one command; the command's code ends in `exit`.
void add_topo(CLI::App& program, int& exit);
void add_tune(CLI::App& program, int& exit);
void add_replay(CLI::App& program, int& exit);
void add_bench(CLI::App& program, int& exit);
void add_why(CLI::App& program, int& exit);
/// `after_dashes` is what followed "--" on the command line: a program and its arguments, as they
/// were written.
void add_run(CLI::App& program, const std::vector<std::string>& after_dashes, int& exit);
/// `completion` and `help`, and a command of the build that writes the manual pages. Added last:
/// `help` knows the others.
void add_completion(CLI::App& program, int& exit);
void add_help(CLI::App& program, int& exit);
void add_generate(CLI::App& program, int& exit);

}  // namespace tiermem::cli

// The tiermem program. Each command has a file of its own and adds itself; this one only parses and
// answers with an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "tiermem/version.hpp"

namespace {

/// A program's arguments after `tiermem run … --` are not for our parser, which would take "[a,b]"
/// apart and swallow a "--" of the program's own.
int words_before_dashes(int argc, char** argv) {
  const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
  int words = 0;
  while (words < argc && !(is_run && std::string_view(argv[words]) == "--")) {
    ++words;
  }
  return words;
}

int run(int argc, char** argv) {
  using namespace tiermem::cli;
  tiermem::set_tell_limit(64);  // Descriptor 2 is this program's own.
  CLI::App program("Memory larger than memory: buffers that live in DRAM and on NVMe.", "tiermem");
  program.footer(kExitCodes);
  program.require_subcommand(1);
  program.set_version_flag("--version", fmt::format("tiermem {}.{}.{}", TIERMEM_VERSION_MAJOR,
                                                    TIERMEM_VERSION_MINOR, TIERMEM_VERSION_PATCH));
  int exit = kDone;
  add_topo(program, exit);
  add_tune(program, exit);
  add_replay(program, exit);
  add_bench(program, exit);
  add_why(program, exit);
  const int own = words_before_dashes(argc, argv);
  add_run(program, {argv + std::min(own + 1, argc), argv + argc}, exit);
  try {
    program.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version come this way.
      program.exit(error);
      return kDone;
    }
    const bool bare = argc < 2;
    if (bare) {
      fmt::print(stderr, "{}", program.help());
      return kUsage;
    }
    return complain(kUsage, fmt::format("{}; see tiermem --help", error.what()));
  }
  // A full disk or a closed pipe must not pass for success.
  if (std::fflush(stdout) != 0 && exit == kDone) {
    return complain(kFailed, "cannot write to standard output");
  }
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return tiermem::cli::complain(tiermem::cli::kFailed, error.what());
  }
}

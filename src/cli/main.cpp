// The tiermem program. Each command has its own file and adds itself; this file parses and returns
// the exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/command_line.hpp"
#include "cli/terminal.hpp"
#include "tiermem/version.hpp"

namespace {

/// A program's arguments after `tiermem run … --` must not reach the parser: it would split "[a,b]"
/// and drop the program's own "--".
int words_before_dashes(int argc, char** argv) {
  const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
  int words = 0;
  while (words < argc && !(is_run && std::string_view(argv[words]) == "--")) {
    ++words;
  }
  return words;
}

/// The commands, and the manual page of the program itself.
void describe(tiermem::cli::Command& program) {
  program.require_subcommand(1);
  program.set_version_flag("-V,--version",
                           fmt::format("tiermem {}.{}.{}", TIERMEM_VERSION_MAJOR,
                                       TIERMEM_VERSION_MINOR, TIERMEM_VERSION_PATCH),
                           "Print the version and exit.");
  program.manual.description = {
      "tiermem gives programs buffers that are larger than any one memory. The bytes of a buffer "
      "live in DRAM, in files or raw devices on NVMe, and in the memory of GPUs. They move between "
      "these tiers when the program touches them, when it gives hints, and by recency. Checksums "
      "protect every slot on a device.",
      "The commands run unmodified programs in a budget of memory, show and measure the tiers of "
      "the machine, replay recorded traces, and ask running processes where their bytes are.",
      "No configuration is needed. The environment variables below, a TOML file, and a spec string "
      "(option=value, separated by semicolons) name tiers and options. For each option the first "
      "of these that names it wins: the command line, the variable of the option, TIERMEM_TIERS, "
      "the file that TIERMEM_CONFIG names, and last the choice of tiermem for this machine.",
      "A size is a number of bytes, or a number with K, M, G, T, P or E, which are powers of 1024: "
      "4096, 64K, 1.5G."};
  program.manual.files = {
      {"$XDG_CACHE_HOME/tiermem, ~/.cache/tiermem",
       "Directory of the block tier where none is named. Its files have no names, and are gone "
       "when their process ends."},
      {"$XDG_CACHE_HOME/tiermem/tuned, ~/.cache/tiermem/tuned",
       "Results of tiermem-tune(1), a file for each device."}};
  program.manual.examples = {{"tiermem topo", "Show the tiers of this machine."},
                             {"tiermem run --dram 4G -- sort -S 16G big.txt",
                              "Run a program that needs more memory than the 4 GiB that it gets."}};
}

int run(int argc, char** argv) {
  using namespace tiermem::cli;
  tiermem::set_tell_limit(64);  // Descriptor 2 belongs to this program.
  Command program("Run programs and buffers with more memory than the machine has", "tiermem");
  describe(program);
  int exit = kDone;
  const int own = words_before_dashes(argc, argv);
  add_run(program, {argv + std::min(own + 1, argc), argv + argc}, exit);
  add_topo(program, exit);
  add_tune(program, exit);
  add_why(program, exit);
  add_replay(program, exit);
  add_bench(program, exit);
  add_completion(program, exit);
  add_help(program, exit);
  add_generate(program, exit);
  std::vector<std::string> words(argv + std::min(1, own), argv + own);
  if (words.empty()) {
    say(program.help());
    return kUsage;
  }
  add_left_out_values(program, words);
  if (const std::string wrong = mistake(program, words); !wrong.empty()) {
    return complain(kUsage, wrong);
  }
  try {
    // CLI11 expects reverse order.
    program.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      return complain(kUsage, refusal(program, words, error));
    }
    program.exit(error);  // --help and --version also end here.
  }
  // A full disk or a closed pipe must not count as success.
  // An earlier flush may have failed, too.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit == kDone) {
    return complain(kFailed,
                    fmt::format("standard output: cannot write: {}", std::strerror(errno)));
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

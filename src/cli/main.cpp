// The tiermem program. Each command has a file of its own and adds itself; this one only parses and
// answers with an exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/suggest.hpp"
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

/// `tiermem help` and `tiermem help topo` are the helps; `--json` without a file is for stdout.
std::vector<std::string> as_meant(int argc, char** argv, int own) {
  std::vector<std::string> words(argv + std::min(1, own), argv + own);
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<std::size_t>(words.size(), 1));
    words.emplace_back("--help");
  }
  const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
  for (std::size_t i = 0; i < words.size() && !is_run; ++i) {
    const bool last = i + 1 == words.size();
    if (words[i] == "--json" && (last || (words[i + 1].starts_with('-') && words[i + 1] != "-"))) {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "-");
    }
  }
  return words;
}

/// The sentence about the first word that is no name of a command or of an option; "": there is
/// none.
std::string misspelt(const CLI::App& program, const std::vector<std::string>& words) {
  using namespace tiermem::cli;
  if (words.empty() || words[0].starts_with('-')) {
    return "";
  }
  const std::vector<std::string> commands = command_names(program);
  if (std::find(commands.begin(), commands.end(), words[0]) == commands.end()) {
    return fmt::format("there is no command \"{:.60}\"{}; there are: {}", words[0],
                       suggestion(words[0], commands), fmt::join(commands, ", "));
  }
  const CLI::App* command = program.get_subcommand(words[0]);
  std::string path = words[0];
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::vector<std::string> below = command_names(*command);
    if (std::find(below.begin(), below.end(), words[i]) != below.end()) {
      command = command->get_subcommand(words[i]);
      path += " " + words[i];
      continue;
    }
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name.starts_with("--") && name.size() > 2) {
      const std::vector<std::string> options = option_names(*command);
      if (std::find(options.begin(), options.end(), name) == options.end()) {
        return fmt::format("{}: there is no option {:.60}{}; see tiermem {} --help", path, name,
                           suggestion(name, options), path);
      }
    }
  }
  return "";
}

int run(int argc, char** argv) {
  using namespace tiermem::cli;
  tiermem::set_tell_limit(64);  // Descriptor 2 is this program's own.
  CLI::App program("Memory larger than memory: buffers that live in DRAM and on NVMe.", "tiermem");
  program.footer(kExitCodes);
  program.require_subcommand(1);
  program.set_version_flag(
      "-V,--version", fmt::format("tiermem {}.{}.{}", TIERMEM_VERSION_MAJOR, TIERMEM_VERSION_MINOR,
                                  TIERMEM_VERSION_PATCH));
  int exit = kDone;
  add_topo(program, exit);
  add_tune(program, exit);
  add_replay(program, exit);
  add_bench(program, exit);
  add_why(program, exit);
  const int own = words_before_dashes(argc, argv);
  add_run(program, {argv + std::min(own + 1, argc), argv + argc}, exit);
  std::vector<std::string> words = as_meant(argc, argv, own);
  const std::vector<std::string> given = words;
  std::reverse(words.begin(), words.end());  // As CLI11 takes them.
  try {
    program.parse(std::move(words));
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
    if (const std::string wrong = misspelt(program, given); !wrong.empty()) {
      return complain(kUsage, wrong);
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

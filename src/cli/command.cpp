// Prints errors, and keeps commands with their manuals.
#include "cli/command.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "base/shown.hpp"
#include "cli/help.hpp"
#include "cli/option_facts.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {

ExitCode exit_code(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return kDone;
    case Code::invalid_argument:
      return kUsage;
    case Code::unsupported:
    case Code::unavailable:
    case Code::no_capacity:
      return kCannot;
    default:
      return kFailed;
  }
}

int complain(ExitCode code, std::string_view sentence) {
  say(fmt::format("tiermem: {}\n", shown(sentence)));
  return code;
}

int complain(const Status& status) {
  return complain(exit_code(status), status.message());
}

Command::Command(std::string about, std::string name)
    : CLI::App(std::move(about), std::move(name)) {
  set_help_flag("-h,--help", "Print this help and exit.");
  formatter(std::make_shared<HelpFormatter>());
}

const Manual& manual_of(const CLI::App& command) {
  return dynamic_cast<const Command&>(command).manual;
}

Command* add_command(CLI::App& program, std::string name, std::string about) {
  auto command = std::make_shared<Command>(std::move(about), std::move(name));
  program.add_subcommand(command);
  return command.get();
}

void add_json(CLI::App& command, std::string& path) {
  command
      .add_option("--json", path,
                  "Write the result as JSON to FILE, too. Without FILE, or with -, write it to "
                  "standard output instead of the tables.")
      ->type_name(kOptionalFile);
}

}  // namespace tiermem::cli

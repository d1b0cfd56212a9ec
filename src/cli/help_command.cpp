// tiermem help: the help of the program or of one command.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/option_facts.hpp"
#include "cli/values.hpp"

namespace tiermem::cli {

void add_help(CLI::App& program, int& exit) {
  std::vector<std::string> names;
  for (const CLI::App* const other : commands_of(program)) {
    names.push_back(other->get_name());
  }
  names.emplace_back("help");
  auto name = std::make_shared<std::string>();
  Command* const command = add_command(program, "help", "Show the help of a command");
  command
      ->add_option("command", *name,
                   "Without it, the help of the program, which lists the commands.")
      ->type_name("COMMAND")
      ->check(one_of(names));
  command->manual.description = {
      "tiermem help COMMAND prints the same text as tiermem COMMAND --help."};
  command->manual.examples = {{"tiermem help run", "Show the options of tiermem run."}};
  command->callback([name, &program, &exit] {
    // App::help() of the program would return that of `help`, the command being executed.
    const auto formatter = program.get_formatter();
    const CLI::App* const wanted = name->empty() ? &program : program.get_subcommand(*name);
    fmt::print("{}", formatter->make_help(wanted, "", CLI::AppFormatMode::Normal));
    exit = kDone;
  });
}

}  // namespace tiermem::cli

// Two columns: names, and their text beside or below them.
#include "cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/option_facts.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kNarrowest = 50;
constexpr std::size_t kTextColumn = 24;

std::string indented(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  for (const std::string& line : wrapped(text, width - indent)) {
    out += std::string(indent, ' ') + line + "\n";
  }
  return out;
}

/// "  --dram SIZE           DRAM for ..."; a long name gets a line of its own.
std::string entry(const std::string& name, const std::string& text, std::size_t width) {
  std::string body = indented(text, kTextColumn, width);
  const std::string start = "  " + name;
  if (start.size() + 2 <= kTextColumn) {
    body.replace(0, start.size(), start);
    return body;
  }
  return start + "\n" + body;
}

std::string options(const CLI::App& command, bool operands, std::size_t width) {
  std::string out;
  for (const OptionFacts& facts : facts_of(command)) {
    if (facts.is_operand == operands) {
      out += entry(heading(facts), whole_text(facts), width);
    }
  }
  return out.empty() ? "" : fmt::format("\n{}:\n{}", operands ? "Operands" : "Options", out);
}

std::string commands(const CLI::App& program, std::size_t width) {
  std::string out;
  for (const CLI::App* const command : commands_of(program)) {
    out += entry(command->get_name(), command->get_description() + ".", width);
  }
  return out.empty() ? "" : "\nCommands:\n" + out;
}

std::string examples(const Manual& manual) {
  std::string out;
  for (const Entry& example : manual.examples) {
    out += "  " + example.term + "\n";
  }
  return out.empty() ? "" : "\nExamples:\n" + out;
}

std::string statuses(const Manual& manual) {
  std::string text = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not possible on this machine";
  for (const Entry& status : manual.statuses) {
    text += fmt::format(", {} {}", status.term, status.text);
  }
  return text + ".";
}

}  // namespace

std::string help_text(const CLI::App& command, std::size_t width) {
  width = std::clamp(width, kNarrowest, kWidth);
  const Manual& manual = manual_of(command);
  const bool is_program = command.get_parent() == nullptr;
  std::string out = fmt::format("Usage: {}\n\n",
                                is_program ? "tiermem COMMAND [ARGUMENT...]" : synopsis(command));
  out += indented(command.get_description() + ".", 0, width);
  if (!is_program) {
    for (const std::string& paragraph : manual.description) {
      out += "\n" + indented(paragraph, 0, width);
    }
  }
  out += commands(command, width) + options(command, true, width) + options(command, false, width);
  out += examples(manual) + "\n" + indented(statuses(manual), 0, width);
  return out + indented(is_program ? "More: tiermem COMMAND --help, man tiermem"
                                   : fmt::format("More: man tiermem-{}", command.get_name()),
                        0, width);
}

std::string HelpFormatter::make_help(const CLI::App* command, std::string,
                                     CLI::AppFormatMode) const {
  return help_text(*command, stdout_is_terminal() ? terminal_width() : kWidth);
}

}  // namespace tiermem::cli

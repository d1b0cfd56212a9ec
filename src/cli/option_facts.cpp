// Only this file reads CLI11's objects.
#include "cli/option_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "cli/command.hpp"

namespace tiermem::cli {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : static_cast<char>(c);
  });
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return parts;
    }
    text = text.substr(comma + 1);
  }
}

/// Reads the kind of the value and the validators' texts; colons separate them.
void read_type(OptionFacts& facts, const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  facts.value = type.substr(0, colon);
  if (facts.value.starts_with('[') && facts.value.ends_with(']')) {
    facts.may_lack_value = true;
    facts.value = facts.value.substr(1, facts.value.size() - 2);
  }
  const std::string rest = colon < type.size() ? type.substr(colon + 1) : "";
  if (rest.starts_with('{') && rest.ends_with('}')) {
    facts.choices = split(std::string_view(rest).substr(1, rest.size() - 2));
  } else {
    facts.range = rest;
  }
}

/// CLI11 puts several defaults into brackets.
std::string without_brackets(const std::string& text) {
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

OptionFacts facts_of(const CLI::Option& option) {
  OptionFacts facts;
  facts.option = &option;
  facts.is_operand = !option.nonpositional();
  if (facts.is_operand) {
    facts.names.push_back(upper(option.get_name(true)));
  }
  for (const std::string& name : option.get_snames()) {
    facts.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    facts.names.push_back("--" + name);
  }
  facts.is_required = option.get_required();
  facts.takes_value = facts.is_operand || option.get_items_expected_max() > 0;
  facts.is_many = option.get_items_expected_max() > 1;
  if (facts.takes_value) {
    read_type(facts, option);
  }
  facts.text = option.get_description();
  facts.fallback = without_brackets(option.get_default_str());
  for (const CLI::Option* const other : option.get_needs()) {
    facts.needs.push_back(other->get_name());
  }
  for (const CLI::Option* const other : option.get_excludes()) {
    facts.excludes.push_back(other->get_name());
  }
  return facts;
}

}  // namespace

bool OptionFacts::is_called(const std::string& word) const {
  return !is_operand && std::find(names.begin(), names.end(), word) != names.end();
}

std::vector<OptionFacts> facts_of(const CLI::App& command) {
  std::vector<OptionFacts> all;
  for (const bool operands : {true, false}) {
    for (const CLI::Option* const option : command.get_options()) {
      if (!option->get_group().empty() && option->nonpositional() != operands) {
        all.push_back(facts_of(*option));
      }
    }
  }
  return all;
}

std::vector<const CLI::App*> commands_of(const CLI::App& program) {
  return program.get_subcommands(
      [](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string heading(const OptionFacts& facts) {
  if (facts.is_operand) {
    return facts.name() + (facts.is_many ? "..." : "");
  }
  const std::string names = fmt::format("{}", fmt::join(facts.names, ", "));
  return !facts.takes_value     ? names
         : facts.may_lack_value ? fmt::format("{} [{}]", names, facts.value)
                                : fmt::format("{} {}", names, facts.value);
}

std::string whole_text(const OptionFacts& facts) {
  std::string text = facts.text;
  if (!facts.choices.empty()) {
    text += fmt::format(" Accepted: {}.", fmt::join(facts.choices, ", "));
  }
  if (!facts.range.empty()) {
    text += fmt::format(" Accepted: {}.", facts.range);
  }
  if (!facts.fallback.empty()) {
    text += fmt::format(" Default: {}.", facts.fallback);
  }
  if (!facts.needs.empty()) {
    text += fmt::format(" Only with {}.", fmt::join(facts.needs, " and "));
  }
  if (!facts.excludes.empty()) {
    text += fmt::format(" Not with {}.", fmt::join(facts.excludes, " or "));
  }
  return text;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

std::string synopsis(const CLI::App& command) {
  std::string text = full_name(command) + " [OPTION...]";
  const std::string& operands = manual_of(command).operands;
  if (!operands.empty()) {
    return text + " " + operands;
  }
  for (const OptionFacts& facts : facts_of(command)) {
    if (facts.is_operand) {
      text += facts.is_required ? " " + heading(facts) : fmt::format(" [{}]", heading(facts));
    }
  }
  return text;
}

}  // namespace tiermem::cli

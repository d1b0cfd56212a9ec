// One walk over the words. The option table tells which options take a value.
#include "cli/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "cli/option_facts.hpp"
#include "cli/suggest.hpp"

namespace tiermem::cli {
namespace {

using Words = std::vector<std::string>;

/// Null if the first word is not a command.
const CLI::App* command_of(const CLI::App& program, const Words& words) {
  const auto all = program.get_subcommands(
      [&](const CLI::App* command) { return !words.empty() && command->get_name() == words[0]; });
  return all.empty() ? nullptr : all.front();
}

const OptionFacts* find(const std::vector<OptionFacts>& options, const std::string& name) {
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const OptionFacts& facts) { return facts.is_called(name); });
  return found == options.end() ? nullptr : &*found;
}

std::string name_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

bool looks_like_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' ? word.size() > 2
                         : std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

/// Adds to the sentence where to read more.
std::string see(const CLI::App& command, std::string sentence) {
  return and_then(std::move(sentence), fmt::format("see {} --help", full_name(command)));
}

/// "replay: ", or "" for the program itself.
std::string prefix(const CLI::App& command) {
  return command.get_parent() == nullptr ? "" : command.get_name() + ": ";
}

std::vector<std::string> names_of(const std::vector<OptionFacts>& options) {
  std::vector<std::string> names;
  for (const OptionFacts& facts : options) {
    if (!facts.is_operand) {
      names.insert(names.end(), facts.names.begin(), facts.names.end());
    }
  }
  return names;
}

std::string unknown_option(const CLI::App& command, const std::vector<OptionFacts>& options,
                           const std::string& name) {
  std::string hint = name.starts_with("--") ? suggestion(name, names_of(options)) : "";
  const CLI::App* const program = command.get_parent();
  if (program != nullptr && find(facts_of(*program), name) != nullptr) {
    hint = fmt::format("; it stands alone: {} {}", program->get_name(), name);
  }
  return see(command, fmt::format("{}there is no option {:.60}{}", prefix(command), name, hint));
}

std::string lacks_value(const CLI::App& command, const OptionFacts& facts,
                        const std::string& name) {
  return see(command,
             fmt::format("{}{} needs a value: {} {}", prefix(command), name, name, facts.value));
}

std::string empty_value(const CLI::App& command, const OptionFacts& facts,
                        const std::string& name) {
  return see(command, fmt::format("{}{} has an empty value; give {}, or leave {} out",
                                  prefix(command), name, facts.value, name));
}

/// `taken_last`: the option that took the last word as its value, if one did.
std::string walk(const CLI::App& command, const Words& words, const OptionFacts** taken_last,
                 const std::vector<OptionFacts>& options) {
  const bool ends_at_operand = command.get_prefix_command();
  std::set<const OptionFacts*> given;
  for (std::size_t i = command.get_parent() == nullptr ? 0 : 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      break;
    }
    if (!looks_like_option(word)) {
      if (ends_at_operand) {
        break;
      }
      continue;
    }
    const std::string name = name_of(word);
    const OptionFacts* const facts = find(options, name);
    if (facts == nullptr) {
      return unknown_option(command, options, name);
    }
    const bool has_equals = name.size() < word.size();
    if (!facts->takes_value) {
      if (has_equals) {
        return see(command, fmt::format("{}{} takes no value; leave out '{:.60}'", prefix(command),
                                        name, word.substr(name.size())));
      }
      continue;
    }
    if (has_equals ? word.size() == name.size() + 1
                   : i + 1 == words.size() || find(options, name_of(words[i + 1])) != nullptr) {
      return lacks_value(command, *facts, name);
    }
    if (!has_equals && words[i + 1].empty()) {  // Often a variable of the shell without a value.
      return empty_value(command, *facts, name);
    }
    if (!given.insert(facts).second && !facts->is_many) {
      return see(command, fmt::format("{}{} is given twice; give it once", prefix(command), name));
    }
    if (!has_equals) {
      ++i;
      *taken_last = i + 1 == words.size() ? facts : nullptr;
    }
  }
  return "";
}

std::string unknown_command(const CLI::App& program, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* const command : commands_of(program)) {
    names.push_back(command->get_name());
  }
  const std::vector<OptionFacts> options = facts_of(program);
  const std::string hint = find(options, "--" + word) != nullptr
                               ? fmt::format("; did you mean --{}?", word)
                               : suggestion(word, names);
  return and_then(fmt::format("there is no command \"{:.60}\"{}", word, hint),
                  fmt::format("there are: {}", fmt::join(names, ", ")));
}

/// The error for a required operand that is missing.
std::string missing_operand(const CLI::App& command, const Words& words) {
  const std::vector<OptionFacts> options = facts_of(command);
  const OptionFacts* taken = nullptr;
  (void)walk(command, words, &taken, options);
  for (const OptionFacts& facts : options) {
    if (facts.is_required && facts.option->count() == 0) {
      std::string text = fmt::format("{}{} is missing", prefix(command), facts.name());
      if (!facts.choices.empty()) {
        text += fmt::format("; accepted: {}", fmt::join(facts.choices, ", "));
      }
      if (taken != nullptr) {
        text += fmt::format("; '{:.60}' was taken as the {} of {}", words.back(), taken->value,
                            taken->name());
      }
      return see(command, std::move(text));
    }
  }
  return "";
}

/// The error for two options that exclude or need each other.
std::string wrong_company(const CLI::App& command) {
  for (const OptionFacts& facts : facts_of(command)) {
    if (facts.option->count() == 0) {
      continue;
    }
    for (const CLI::Option* const other : facts.option->get_excludes()) {
      if (other->count() > 0) {
        return see(command, fmt::format("{}{} and {} exclude each other; leave one of them out",
                                        prefix(command), facts.name(), other->get_name()));
      }
    }
    for (const CLI::Option* const other : facts.option->get_needs()) {
      if (other->count() == 0) {
        return see(command, fmt::format("{}{} needs {}; add it, or leave {} out", prefix(command),
                                        facts.name(), other->get_name(), facts.name()));
      }
    }
  }
  return "";
}

/// CLI11's message, with operands named as in the help.
std::string what(const CLI::App& command, const CLI::ParseError& error) {
  std::string text = error.what();
  for (const OptionFacts& facts : facts_of(command)) {
    const std::string name = facts.option->get_name() + ": ";
    if (facts.is_operand && text.starts_with(name)) {
      text.replace(0, name.size(), facts.name() + ": ");
    }
  }
  return text;
}

}  // namespace

void add_left_out_values(const CLI::App& program, Words& words) {
  const CLI::App* const command = command_of(program, words);
  if (command == nullptr) {
    return;
  }
  const std::vector<OptionFacts> options = facts_of(*command);
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const OptionFacts* const facts = find(options, words[i]);
    const bool last = i + 1 == words.size();
    if (facts != nullptr && facts->may_lack_value &&
        (last || (words[i + 1].starts_with('-') && words[i + 1] != "-"))) {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "-");
    }
  }
}

std::string mistake(const CLI::App& program, const Words& words) {
  const OptionFacts* taken = nullptr;
  if (words.empty() || looks_like_option(words[0])) {
    return walk(program, words, &taken, facts_of(program));
  }
  const CLI::App* const command = command_of(program, words);
  return command == nullptr ? unknown_command(program, words[0])
                            : walk(*command, words, &taken, facts_of(*command));
}

std::string refusal(const CLI::App& program, const Words& words, const CLI::ParseError& error) {
  const CLI::App* const named = command_of(program, words);
  if (named == nullptr) {
    return see(program, "a command is missing");
  }
  const CLI::App& command = *named;
  std::string text;
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    text = missing_operand(command, words);
  } else if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr ||
             dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    text = wrong_company(command);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extra = command.remaining();
    if (!extra.empty()) {
      text = see(command,
                 fmt::format("{}'{:.60}' is not expected here", prefix(command), extra.front()));
    }
  }
  return !text.empty() ? text : see(command, prefix(command) + what(command, error));
}

}  // namespace tiermem::cli

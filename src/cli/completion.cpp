// Each script is a fixed frame around tables of the commands.
#include "cli/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "cli/option_facts.hpp"

namespace tiermem::cli {
namespace {

/// The first sentence, without its full stop. A shell shows it beside a name.
std::string brief(const std::string& text) {
  const std::size_t end = text.find(". ");
  std::string first = text.substr(0, end);
  if (first.ends_with('.')) {
    first.pop_back();
  }
  return first;
}

/// Quotes the text so that a shell reads it as one word.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out + "'";
}

enum class Kind { words, files, folders, paths, other };

Kind kind_of(const OptionFacts& facts) {
  return !facts.choices.empty()   ? Kind::words
         : facts.value == kFile   ? Kind::files
         : facts.value == kFolder ? Kind::folders
         : facts.value == kPath   ? Kind::paths
                                  : Kind::other;
}

std::vector<std::string> names_of(const CLI::App& command, bool only_with_value) {
  std::vector<std::string> names;
  for (const OptionFacts& facts : facts_of(command)) {
    if (!facts.is_operand && (facts.takes_value || !only_with_value)) {
      names.insert(names.end(), facts.names.begin(), facts.names.end());
    }
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* const command : commands_of(program)) {
    names.push_back(command->get_name());
  }
  return names;
}

// ---- bash --------------------------------------------------------------------------------------

constexpr std::string_view kBashFrame = R"(
# Words of a list, and of several with commas between.
_tiermem_words() {
  local typed=${cur##*,}
  mapfile -t COMPREPLY < <(compgen -P "${cur%"$typed"}" -W "$1" -- "$typed")
}

_tiermem_names() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}

# A program and its arguments, which begin at word $1 of the command line.
_tiermem_program() {
  if declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset "$1"
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif (($1 == COMP_CWORD)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
  else
    _tiermem_names -f
  fi
}

_tiermem() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local name=${COMP_WORDS[1]} options valued i word operands=0 program=0
  COMPREPLY=()
  # Readline makes three words of --option=value.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)); then
    _tiermem_words "$_tiermem_commands"
    return
  fi
  _tiermem_options "$name"
  for ((i = 2; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then
      program=$((i + 1))
      break
    elif [[ $word == "=" || " $valued " == *" $word "* && ${COMP_WORDS[i + 1]} != "=" ]]; then
      ((++i))
    elif [[ $word != -* ]]; then
      ((++operands))
      ((program == 0)) && program=$i
      [[ $name == run ]] && break
    fi
  done
  if [[ $name == run && $program -gt 0 ]]; then
    _tiermem_program "$program"
  elif [[ " $valued " == *" $prev "* && $cur != -?* ]]; then
    _tiermem_value "$name" "$prev"
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ $name == run ]]; then
    _tiermem_program "$COMP_CWORD"
  else
    _tiermem_operand "$name" "$operands"
  fi
}

complete -F _tiermem tiermem
)";

std::string bash_action(const OptionFacts& facts) {
  switch (kind_of(facts)) {
    case Kind::words:
      return fmt::format("_tiermem_words {}",
                         quoted(fmt::format("{}", fmt::join(facts.choices, " "))));
    case Kind::files:
    case Kind::paths:
      return "_tiermem_names -f";
    case Kind::folders:
      return "_tiermem_names -d";
    case Kind::other:
      break;
  }
  return "";
}

// ---- zsh ---------------------------------------------------------------------------------------

/// _arguments skips "--" and does not notice that a program begins there.
constexpr std::string_view kZshProgram = R"(      local -i dashes=${words[(i)--]}
      if ((dashes < CURRENT)); then
        shift $dashes words
        ((CURRENT -= dashes))
        _normal
        return
      fi
)";

/// Escapes text between the brackets of _arguments, or after the colon of _describe.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out +=
        c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return out;
}

std::string zsh_action(const OptionFacts& facts) {
  switch (kind_of(facts)) {
    case Kind::words:
      return fmt::format("({})", fmt::join(facts.choices, " "));
    case Kind::files:
    case Kind::paths:
      return "_files";
    case Kind::folders:
      return "_files -/";
    case Kind::other:
      break;
  }
  return " ";
}

std::string zsh_arguments(const CLI::App& command) {
  std::string out;
  for (const OptionFacts& facts : facts_of(command)) {
    const std::string text = zsh_text(brief(facts.text));
    if (facts.is_operand) {
      out += fmt::format(" \\\n        {}", quoted(fmt::format("{}:{}:{}", facts.is_many ? "*" : "",
                                                               facts.name(), zsh_action(facts))));
      continue;
    }
    const std::string value = !facts.takes_value
                                  ? ""
                                  : fmt::format("{}{}:{}", facts.may_lack_value ? "::" : ":",
                                                zsh_text(facts.value), zsh_action(facts));
    for (const std::string& name : facts.names) {
      out += fmt::format(" \\\n        {}",
                         quoted(fmt::format("{}{}{}[{}]{}", facts.is_many ? "*" : "", name,
                                            facts.takes_value ? "=" : "", text, value)));
    }
  }
  if (command.get_prefix_command()) {
    out += " \\\n        '(-)1:PROGRAM: _command_names -e' \\\n        '*::ARGUMENT: _normal'";
  }
  return out;
}

// ---- fish --------------------------------------------------------------------------------------

constexpr std::string_view kFishFrame = R"(
function __tiermem_needs_command
    test (count (commandline -opc)) -eq 1
end

function __tiermem_uses
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] $argv
end

# Whether no word but options stands after the command.
function __tiermem_has_no_operand
    test (count (__tiermem_operands)) -eq 0
end

# The words from the first one on that is no option of tiermem.
function __tiermem_operands
    set -l words (commandline -opc)
    set -e words[1..2]
    while set -q words[1]
        if contains -- $words[1] $__tiermem_valued
            set -e words[1]
            set -q words[1]; and set -e words[1]
        else if test "$words[1]" = --
            printf '%s\n' $words
            return
        else if string match -q -- '-*' $words[1]
            set -e words[1]
        else
            printf '%s\n' $words
            return
        end
    end
end

# What the program under `tiermem run` completes.
function __tiermem_program
    set -l words (__tiermem_operands)
    set -l typed (commandline -ct)
    if test "$words[1]" = --
        set -e words[1]
    else if not set -q words[1]; and string match -q -- '-*' $typed
        return
    end
    complete --do-complete=(string join ' ' -- (string escape -- $words) $typed)
end
)";

std::string fish_value(const OptionFacts& facts) {
  switch (kind_of(facts)) {
    case Kind::words:
      return fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(facts.choices, " "))));
    case Kind::files:
    case Kind::paths:
      return " -r -F";
    case Kind::folders:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::other:
      break;
  }
  return " -x";
}

std::string fish_option(const OptionFacts& facts, const std::string& condition) {
  std::string out = fmt::format("complete -c tiermem -n {}", quoted(condition));
  for (const std::string& name : facts.names) {
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return out + (facts.takes_value ? fish_value(facts) : "") + " -d " + quoted(brief(facts.text)) +
         "\n";
}

/// Completes the operands of the command.
std::string fish_operand(const OptionFacts& facts, const std::string& name) {
  const std::string condition =
      facts.is_many ? "__tiermem_uses " + name
                    : fmt::format("__tiermem_uses {}; and __tiermem_has_no_operand", name);
  const std::string start = fmt::format("complete -c tiermem -n {}", quoted(condition));
  switch (kind_of(facts)) {
    case Kind::words:
      return fmt::format("{} -a {}\n", start,
                         quoted(fmt::format("{}", fmt::join(facts.choices, " "))));
    case Kind::other:
      return "";
    default:
      return start + " -F\n";
  }
}

}  // namespace

std::string bash_completion(const CLI::App& program) {
  std::string options, values, operands;
  for (const CLI::App* const command : commands_of(program)) {
    const std::string& name = command->get_name();
    options += fmt::format("    {})\n      options='{}'\n      valued='{}'\n      ;;\n", name,
                           fmt::join(names_of(*command, false), " "),
                           fmt::join(names_of(*command, true), " "));
    for (const OptionFacts& facts : facts_of(*command)) {
      const std::string action = bash_action(facts);
      if (action.empty()) {
        continue;
      }
      std::string& into = facts.is_operand ? operands : values;
      into += fmt::format("    \"{} {}\") {} ;;\n", name,
                          !facts.is_operand ? facts.name()
                          : facts.is_many   ? "\"*\""
                                            : "0",
                          action);
    }
  }
  return fmt::format(
      "# Completion of tiermem in bash, written by tiermem from its option tables.\n\n"
      "_tiermem_commands='{} {}'\n\n"
      "# Sets the options of a command, and those of them that take a value.\n"
      "_tiermem_options() {{\n  case $1 in\n{}  esac\n}}\n\n"
      "# Completes the value of option $2 of command $1.\n"
      "_tiermem_value() {{\n  case \"$1 $2\" in\n{}  esac\n}}\n\n"
      "# Completes an operand of command $1 that has $2 operands already.\n"
      "_tiermem_operand() {{\n  case \"$1 $2\" in\n{}  esac\n}}\n{}",
      fmt::join(command_names(program), " "), fmt::join(names_of(program, false), " "), options,
      values, operands, kBashFrame);
}

std::string zsh_completion(const CLI::App& program) {
  std::string commands, cases;
  for (const CLI::App* const command : commands_of(program)) {
    const std::string& name = command->get_name();
    commands += fmt::format(
        "    {}\n", quoted(fmt::format("{}:{}", name, zsh_text(command->get_description()))));
    cases += fmt::format("    {})\n{}      _arguments -S{}\n      ;;\n", name,
                         command->get_prefix_command() ? kZshProgram : "", zsh_arguments(*command));
  }
  return fmt::format(
      "#compdef tiermem\n"
      "# Completion of tiermem in zsh, written by tiermem from its option tables.\n\n"
      "_tiermem() {{\n"
      "  local curcontext=$curcontext state line\n"
      "  local -A opt_args\n"
      "  local -a names\n"
      "  names=(\n{}  )\n"
      "  _arguments -C{} \\\n        '1:COMMAND:->command' \\\n        '*::ARGUMENT:->argument'\n"
      "  if [[ $state == command ]]; then\n"
      "    _describe -t commands 'tiermem command' names\n"
      "    return\n"
      "  fi\n"
      "  [[ $state == argument ]] || return\n"
      "  case $words[1] in\n{}  esac\n"
      "}}\n\n"
      "if [[ $funcstack[1] == _tiermem ]]; then\n  _tiermem \"$@\"\nelse\n"
      "  compdef _tiermem tiermem\nfi\n",
      commands, zsh_arguments(program), cases);
}

std::string fish_completion(const CLI::App& program) {
  std::vector<std::string> valued;
  std::string out;
  for (const OptionFacts& facts : facts_of(program)) {
    out += fish_option(facts, "__tiermem_needs_command");
  }
  for (const CLI::App* const command : commands_of(program)) {
    const std::string& name = command->get_name();
    for (const std::string& option : names_of(*command, true)) {
      valued.push_back(option);
    }
    out += fmt::format("complete -c tiermem -n __tiermem_needs_command -a {} -d {}\n", name,
                       quoted(command->get_description()));
    const bool has_program = command->get_prefix_command();
    const std::string condition =
        has_program ? fmt::format("__tiermem_uses {}; and __tiermem_has_no_operand", name)
                    : "__tiermem_uses " + name;
    for (const OptionFacts& facts : facts_of(*command)) {
      out += facts.is_operand ? fish_operand(facts, name) : fish_option(facts, condition);
    }
    if (has_program) {
      out += fmt::format("complete -c tiermem -n '__tiermem_uses {}' -a '(__tiermem_program)'\n",
                         name);
    }
  }
  std::sort(valued.begin(), valued.end());
  valued.erase(std::unique(valued.begin(), valued.end()), valued.end());
  return fmt::format(
      "# Completion of tiermem in fish, written by tiermem from its option tables.\n\n"
      "set -g __tiermem_valued {}\n{}\ncomplete -c tiermem -f\n{}",
      fmt::join(valued, " "), kFishFrame, out);
}

}  // namespace tiermem::cli

// Writes section by section. All text passes roff(), so that no word of a table becomes a request.
#include "cli/man_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "cli/option_facts.hpp"
#include "runtime/options.hpp"
#include "runtime/variables.hpp"
#include "tiermem/version.hpp"

namespace tiermem::cli {
namespace {

/// Variables that are not tiermem's own.
const std::array kOtherVariables = {
    Entry{"NO_COLOR", "If it is set and not empty, nothing is printed in bold or in colours."},
    Entry{"TERM",
          "If it is unset or dumb, output is that for a file: no colours, no progress bar."},
    Entry{"XDG_CACHE_HOME", "The cache directory of the user. Default: $HOME/.cache."},
    Entry{"HOME", "The home directory of the user."},
    Entry{"PATH", "Where the program is searched for."},
    Entry{"LD_PRELOAD", "Libraries named there are loaded after the preload library."},
};

/// Text between the requests of a page. A point or an apostrophe starts no request, hyphens are
/// option hyphens, and `code` is bold.
std::string roff(std::string_view text) {
  std::string out;
  bool bold = false;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '`':
        bold = !bold;
        out += bold ? "\\fB" : "\\fR";
        break;
      default:
        out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

/// One line for each sentence: roff puts its own space between them.
std::string sentences(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t end = text.find(". ");
    end = end == std::string_view::npos ? text.size() : end + 1;
    out += roff(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string section(const char* name, const std::string& body) {
  return body.empty() ? "" : fmt::format(".SH {}\n{}", name, body);
}

/// `term` already has its fonts.
std::string item(const std::string& term, std::string_view text) {
  return fmt::format(".TP\n{}\n{}", term, sentences(text));
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", roff(text));
}
std::string italic(std::string_view text) {
  return fmt::format("\\fI{}\\fR", roff(text));
}

/// A word in capitals is a placeholder for a value.
std::string with_placeholders(std::string_view text) {
  std::string out;
  std::string word;
  const auto end_word = [&] {
    out += word.size() > 1 ? italic(word) : roff(word);
    word.clear();
  };
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') {
      word += c;
      continue;
    }
    end_word();
    out += roff(std::string_view(&c, 1));
  }
  end_word();
  return out;
}

std::string synopsis_section(const CLI::App& command) {
  const std::string name = full_name(command);
  const bool is_program = command.get_parent() == nullptr;
  const std::string rest =
      is_program ? " COMMAND [ARGUMENT...]" : synopsis(command).substr(name.size());
  std::string text = bold(name) + with_placeholders(rest) + "\n";
  if (is_program) {
    text += ".br\n" + bold(name) + " " + bold("--version") + "\n";
  }
  return text;
}

std::string paragraphs(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    out += (out.empty() ? "" : ".PP\n") + sentences(text);
  }
  return out;
}

std::string term_of(const OptionFacts& facts) {
  if (facts.is_operand) {
    return italic(facts.name()) + (facts.is_many ? "..." : "");
  }
  std::string out;
  for (const std::string& name : facts.names) {
    out += (out.empty() ? "" : ", ") + bold(name);
  }
  return !facts.takes_value     ? out
         : facts.may_lack_value ? fmt::format("{} [{}]", out, italic(facts.value))
                                : fmt::format("{} {}", out, with_placeholders(facts.value));
}

std::string options_section(const CLI::App& command) {
  std::string out;
  for (const OptionFacts& facts : facts_of(command)) {
    out += item(term_of(facts), whole_text(facts));
  }
  return out;
}

std::string commands_section(const CLI::App& program) {
  std::string out;
  for (const CLI::App* const command : commands_of(program)) {
    out += item(bold(page_name(*command)) + "(1)", command->get_description() + ".");
  }
  return out;
}

std::string status_section(const Manual& manual) {
  std::string out = item("0", "Done.") +
                    item("1", "The command failed, or a check found an error.") +
                    item("2", "The command line or an option is wrong.") +
                    item("3", "This machine lacks what the command needs.");
  for (const Entry& status : manual.statuses) {
    std::string text = status.text + ".";
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    out += item(with_placeholders(status.term), text);
  }
  return out;
}

std::string option_meaning(const Option& option) {
  return fmt::format("{} Accepted: {}. Default: {}.", option.meaning, accepted_values(option),
                     option.fallback);
}

std::string meaning_of(const std::string& name) {
  for (const Variable& variable : variable_table()) {
    if (name == variable.name && *variable.meaning != '\0') {
      return variable.meaning;
    }
  }
  for (const Option& option : option_table()) {
    if (name == option.env) {
      return option_meaning(option);
    }
  }
  for (const Entry& other : kOtherVariables) {
    if (name == other.term) {
      return other.text;
    }
  }
  throw std::logic_error(fmt::format("no table explains the variable {}", name));
}

/// All variables that the program and the library read, from their tables.
std::string all_variables() {
  std::string out;
  for (const Variable& variable : variable_table()) {
    if (*variable.meaning != '\0') {
      out += item(bold(variable.name), variable.meaning);
    }
  }
  for (const Option& option : option_table()) {
    out += item(bold(option.env),
                fmt::format("The option `{}`. {}", option.name, option_meaning(option)));
  }
  for (const Entry& other : kOtherVariables) {
    out += item(bold(other.term), other.text);
  }
  return out;
}

std::string environment_section(const CLI::App& command) {
  if (command.get_parent() == nullptr) {
    return all_variables();
  }
  std::string out;
  for (const std::string& name : manual_of(command).variables) {
    out += item(bold(name), meaning_of(name));
  }
  const bool reads_options =
      out.find("TIERMEM\\_") != std::string::npos || out.find("TIERMEM_TIERS") != std::string::npos;
  return reads_options
             ? out + ".PP\n" + bold("tiermem") + "(1) lists the variable of each option.\n"
             : out;
}

std::string entries(const std::vector<Entry>& list) {
  std::string out;
  for (const Entry& entry : list) {
    out += item(italic(entry.term), entry.text);
  }
  return out;
}

std::string examples_section(const Manual& manual) {
  std::string out;
  for (const Entry& example : manual.examples) {
    out += fmt::format("{}{}.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", out.empty() ? "" : ".PP\n",
                       sentences(example.text), roff(example.term));
  }
  return out;
}

/// The program's page names all others. A command's page names the program and the other commands.
std::string see_also(const CLI::App& command) {
  const CLI::App* const program = command.get_parent() == nullptr ? &command : command.get_parent();
  std::vector<std::string> pages;
  for (const CLI::App* const other : commands_of(*program)) {
    if (other != &command) {
      pages.push_back(bold(page_name(*other)) + "(1)");
    }
  }
  if (program != &command) {
    pages.push_back(bold("tiermem") + "(1)");
  }
  std::sort(pages.begin(), pages.end());
  for (const std::string& other : manual_of(command).see_also) {
    const std::size_t paren = other.find('(');
    pages.push_back(bold(other.substr(0, paren)) + other.substr(paren));
  }
  return fmt::format("{}\n", fmt::join(pages, ",\n"));
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::string page_name(const CLI::App& command) {
  std::string name = full_name(command);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const CLI::App& command, const std::string& date) {
  const Manual& manual = manual_of(command);
  const std::string name = page_name(command);
  std::string about = command.get_description();
  about[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(about[0])));
  std::string page = fmt::format(
      ".\\\" Written by tiermem from its option tables.\n"
      ".TH {} 1 {} \"tiermem {}.{}.{}\" \"tiermem\"\n",
      upper(name), date, TIERMEM_VERSION_MAJOR, TIERMEM_VERSION_MINOR, TIERMEM_VERSION_PATCH);
  page += section("NAME", fmt::format("{} \\- {}\n", roff(name), roff(about)));
  page += section("SYNOPSIS", synopsis_section(command));
  page += section("DESCRIPTION", paragraphs(manual.description));
  page += section("COMMANDS", commands_section(command));
  page += section("OPTIONS", options_section(command));
  page += section("EXIT STATUS", status_section(manual));
  page += section("ENVIRONMENT", environment_section(command));
  page += section("FILES", entries(manual.files));
  page += section("EXAMPLES", examples_section(manual));
  return page + section("SEE ALSO", see_also(command));
}

}  // namespace tiermem::cli

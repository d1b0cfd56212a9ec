// What the option tables say of a command, as plain values: for the help, the manual pages, the
// completion of shells, and the sentences about mistakes. The tables are the CLI11 objects that the
// commands fill; nothing is listed a second time. One thread.
//
// How a table says what CLI11 has no word for: the type name is what the value is (kinds below), in
// brackets where it may be left out; a validator's description is a list of words "{a,b}" or a
// range "1 to 600".
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// Names of values that are completed as names of files, folders or programs.
inline constexpr const char* kFile = "FILE";
inline constexpr const char* kOptionalFile = "[FILE]";
inline constexpr const char* kFolder = "DIR";
inline constexpr const char* kPath = "PATH";  ///< A folder or a device; a size may follow.

struct OptionFacts {
  const CLI::Option* option = nullptr;
  std::vector<std::string> names;  ///< "-h", "--help"; one such as "TRACE" where it is an operand.
  bool is_operand = false;
  bool is_required = false;
  bool is_many = false;      ///< May be given several times.
  bool takes_value = false;  ///< All but flags.
  bool may_lack_value = false;
  std::string value;                 ///< "SIZE"; of an operand, its kind.
  std::vector<std::string> choices;  ///< All words that are accepted; empty: others, too.
  std::string range;                 ///< "1 to 600"
  std::string text;
  std::string fallback;  ///< The default, in the words of the table.
  std::vector<std::string> needs, excludes;

  /// The longest name.
  const std::string& name() const { return names.back(); }
  bool is_called(const std::string& word) const;
};

/// Operands first, then options, each in the order of the table. Hidden ones are left out.
std::vector<OptionFacts> facts_of(const CLI::App& command);
/// The commands that are shown to people.
std::vector<const CLI::App*> commands_of(const CLI::App& program);

/// "-h, --help", "--seconds SECONDS", "TRACE...".
std::string heading(const OptionFacts& facts);
/// The text with what is accepted, the default and the options it goes with.
std::string whole_text(const OptionFacts& facts);
/// "tiermem replay [OPTION...] TRACE..."
std::string synopsis(const CLI::App& command);
/// "tiermem", "tiermem replay"
std::string full_name(const CLI::App& command);

}  // namespace tiermem::cli

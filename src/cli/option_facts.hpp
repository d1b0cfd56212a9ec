// The option tables' contents for a command, as plain values: for the help, the manual pages, shell
// completion, and error messages. The tables are the CLI11 objects that the commands fill; nothing
// is listed a second time. One thread.
//
// CLI11 cannot express some facts, so a table encodes them. The type name is the kind of value
// (kinds below), in brackets if the value is optional. A validator's description is a list of words
// "{a,b}" or a range "1 to 600".
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// Kinds of values that are completed as files, folders or programs.
inline constexpr const char* kFile = "FILE";
inline constexpr const char* kOptionalFile = "[FILE]";
inline constexpr const char* kFolder = "DIR";
inline constexpr const char* kPath = "PATH";  ///< A folder or a device; a size may follow it.

struct OptionFacts {
  const CLI::Option* option = nullptr;
  /// "-h", "--help"; a single name such as "TRACE" for an operand.
  std::vector<std::string> names;
  bool is_operand = false;
  bool is_required = false;
  bool is_many = false;      ///< May occur several times.
  bool takes_value = false;  ///< True for all options except flags.
  bool may_lack_value = false;
  std::string value;                 ///< "SIZE"; for an operand, its kind.
  std::vector<std::string> choices;  ///< All accepted words; empty: other words are accepted, too.
  std::string range;                 ///< "1 to 600"
  std::string text;
  std::string fallback;  ///< The default, as the table words it.
  std::vector<std::string> needs, excludes;

  /// The longest name.
  const std::string& name() const { return names.back(); }
  bool is_called(const std::string& word) const;
};

/// Operands first, options next, each in the order of the table. Hidden ones are excluded.
std::vector<OptionFacts> facts_of(const CLI::App& command);
/// The commands that are not hidden.
std::vector<const CLI::App*> commands_of(const CLI::App& program);

/// "-h, --help", "--seconds SECONDS", "TRACE...".
std::string heading(const OptionFacts& facts);
/// The text with the accepted values, the default, and the options it goes with.
std::string whole_text(const OptionFacts& facts);
/// "tiermem replay [OPTION...] TRACE..."
std::string synopsis(const CLI::App& command);
/// "tiermem", "tiermem replay"
std::string full_name(const CLI::App& command);

}  // namespace tiermem::cli

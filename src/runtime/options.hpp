// The option table: every name that the spec string, TOML and the environment accept, with its
// type, default, range and meaning. The parser, the documentation and the program all read this
// table. Also the spelling of sizes. Constant data and pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

enum class OptionType : std::uint8_t {
  budget,        ///< A size, or a percentage of the remaining memory.
  devices,       ///< "/path:size, …" or off.
  numbered,      ///< "0:16G, 1" or off.
  size,          ///< "64K", "1.5G"; units are powers of 1024. `auto` if `choices` says so.
  power_of_two,  ///< A size that is a power of two.
  count,         ///< `auto` if `choices` says so.
  percent,       ///< "5" or "5%".
  choice,        ///< One word of `choices`.
  path,          ///< A path, or the word in `choices`.
};

/// A value that its option accepts. `number` holds a choice's index.
struct OptionValue {
  std::uint64_t number = 0;
  std::string text;
};

struct Option {
  const char* name;
  OptionType type;
  const char* fallback;  ///< The default as written by a user; a description for the tiers.
  std::uint64_t low, high;
  const char* choices;  ///< "auto|io_uring|threads"
  const char* env;
  const char* meaning;
  const char* observed_by;                                  ///< The test that checks its effect.
  void (*apply)(Config& config, const OptionValue& value);  ///< nullptr for the tiers.

  bool is_tier() const { return type == OptionType::budget || is_list(); }
  bool is_list() const { return type == OptionType::devices || type == OptionType::numbered; }
};

/// Returns how many tiers an option with a list may name.
std::size_t most_devices(const Option& option);
std::span<const Option> option_table();
/// Finds an option by name; `block` is an alias for `nvme`. `hands` is the former name of
/// `workers`, and is accepted until 0.3. nullptr: there is none.
const Option* find_option(std::string_view name);
/// The former name of an option's variable, which is accepted until 0.3, or nullptr.
const char* former_variable(const Option& option);
/// The name with the smallest edit distance.
const char* nearest_option(std::string_view name);
/// The number of characters to replace, add or remove to make one text of the other.
std::size_t edit_distance(std::string_view a, std::string_view b);
/// For messages and the documentation, such as "a number from 1 to 1024".
std::string accepted_values(const Option& option);
/// `origin` names the source of the value. Not for tiers.
Status apply_option(Config& config, const Option& option, std::string_view value,
                    std::string_view origin);
/// The error for a value that `option` does not accept.
Status refuse_value(const Option& option, std::string_view value, std::string_view origin);
/// The table of docs/configuration.md.
std::string option_table_markdown();

/// "4096", "64K", "1.5 GiB". Errors: invalid_argument for anything else, and above 2^64-1.
Result<std::uint64_t> parse_size(std::string_view text);
/// The shortest spelling that parse_size() reads back exactly: "4G", "4097".
std::string format_size(std::uint64_t bytes);
/// Without blanks at either end.
std::string_view trim(std::string_view text);

}  // namespace tiermem

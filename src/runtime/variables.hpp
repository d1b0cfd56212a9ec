// The names of all environment variables that tiermem, its tests and its scripts read: each
// option's own, and the table in variables.cpp. Any other name that begins with TIERMEM_ has no
// effect, so the user gets a warning.
//
// Threads: any. Constant data and pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tiermem {

/// A variable that is not an option's own.
struct Variable {
  const char* name;
  const char*
      meaning;  ///< For docs/configuration.md. Empty: for tests and scripts, not documented.
};
std::span<const Variable> variable_table();

bool is_known_variable(std::string_view name);
/// The known name with the smallest edit distance. Names for tests and scripts are excluded.
const char* nearest_variable(std::string_view name);
/// One sentence for each unknown variable in `environment` ("NAME=value", ended by nullptr) that
/// begins with TIERMEM_.
std::vector<std::string> unknown_variables(const char* const* environment);
/// The table of docs/configuration.md.
std::string variable_table_markdown();

}  // namespace tiermem

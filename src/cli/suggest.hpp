// Suggestions for words that are no command or option.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// "; did you mean topo?" for the candidate that is nearest to the word, or "" when none is near:
/// at most a third of its letters are wrong, missing, added or exchanged with a neighbour.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
std::vector<std::string> command_names(const CLI::App& program);
std::vector<std::string> option_names(const CLI::App& command);

}  // namespace tiermem::cli

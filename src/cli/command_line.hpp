// Checks the words of the command line before CLI11 parses them, and words its errors. Each message
// names the command, the typed word, and the remedy. One thread.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// Adds "-" after each option with an optional value that is omitted: "-" means standard output.
void add_left_out_values(const CLI::App& program, std::vector<std::string>& words);
/// Returns the error for the first word that is wrong by itself: an unknown command or option, or
/// an option without its value. "": there is none.
std::string mistake(const CLI::App& program, const std::vector<std::string>& words);
/// Returns the error for a refusal of CLI11. `words` are the words that it parsed.
std::string refusal(const CLI::App& program, const std::vector<std::string>& words,
                    const CLI::ParseError& error);

}  // namespace tiermem::cli

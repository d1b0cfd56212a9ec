// The words of the command line: a look at them before CLI11 parses, and sentences about what it
// refuses. Each sentence names the command, the word that was typed, and the remedy. One thread.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// Adds "-" after each option whose value may be left out and is: it stands for standard output.
void add_left_out_values(const CLI::App& program, std::vector<std::string>& words);
/// The sentence about the first word that is wrong by itself: a command or an option that does not
/// exist, or an option without its value. "": none is.
std::string mistake(const CLI::App& program, const std::vector<std::string>& words);
/// The sentence about what CLI11 did not accept. `words` are those that it parsed.
std::string refusal(const CLI::App& program, const std::vector<std::string>& words,
                    const CLI::ParseError& error);

}  // namespace tiermem::cli

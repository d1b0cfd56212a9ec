// The accepted values of options, as CLI11 validators. Each error names the typed value and the
// accepted values. option_facts.hpp reads the description. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// One of `words`. Suggests a word that is near.
CLI::Validator one_of(std::vector<std::string> words);
/// A whole number, written in decimal digits.
CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);
/// As whole_number(), with an upper limit that is never reached.
CLI::Validator positive_number();
CLI::Validator real_number(double low, double high);
/// A size of at least `least` bytes, in the library's spelling: "64K".
CLI::Validator size_in_bytes(std::uint64_t least = 0);

}  // namespace tiermem::cli

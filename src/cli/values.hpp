// What an option accepts, as CLI11 validators. Each names the value that was typed and says what is
// accepted. Its description is what option_facts.hpp reads. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// One of `words`. A word that is near is suggested.
CLI::Validator one_of(std::vector<std::string> words);
/// A whole number, written in decimal digits.
CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);
/// As whole_number() without an upper limit that a person meets.
CLI::Validator positive_number();
CLI::Validator real_number(double low, double high);
/// As the library reads sizes: "64K".
CLI::Validator size_in_bytes();

}  // namespace tiermem::cli

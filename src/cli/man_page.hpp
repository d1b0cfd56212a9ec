// Manual pages in man(7) of the program and of each command, from the option tables. One thread.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// "tiermem", "tiermem-run"
std::string page_name(const CLI::App& command);
/// `date` is "2026-01-31". Throws std::logic_error if a command names a variable without an entry
/// in a table.
std::string man_page(const CLI::App& command, const std::string& date);

}  // namespace tiermem::cli

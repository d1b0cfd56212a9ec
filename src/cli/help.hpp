// The help of a command, 80 columns wide, from its option table. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

/// Each line has at most `width` columns.
std::string help_text(const CLI::App& command, std::size_t width);

/// CLI11 calls it for `--help`.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* command, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace tiermem::cli

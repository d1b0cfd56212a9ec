// Shell completion, generated from the option tables. One thread.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace tiermem::cli {

std::string bash_completion(const CLI::App& program);
std::string zsh_completion(const CLI::App& program);
std::string fish_completion(const CLI::App& program);

}  // namespace tiermem::cli

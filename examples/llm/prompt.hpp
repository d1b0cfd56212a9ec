// Prompt: the first tokens, from prompts.json or from the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llm {

struct Prompt {
  std::string text;  ///< Empty if it came as ids.
  std::vector<std::uint32_t> ids;
};

/// Reads the prompt of that name. Throws Failure: files, or usage with a list of the names.
Prompt read_prompt(const std::string& path, const std::string& name);

}  // namespace llm

// prompts.json: {"name": {"text": "...", "ids": [2, ...]}, ...}, written by convert.py.
#include "prompt.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "failure.hpp"

namespace llm {

Prompt read_prompt(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  if (!file) {
    throw Failure(Exit::files, path + ": cannot be opened; examples/llm/prepare makes it");
  }
  try {
    const auto prompts = nlohmann::json::parse(file);
    if (!prompts.contains(name)) {
      std::string names;
      for (const auto& [known, unused] : prompts.items()) {
        names += (names.empty() ? "" : ", ") + known;
      }
      throw Failure(Exit::usage, "no prompt '" + name + "'; accepted: " + names);
    }
    const auto& prompt = prompts.at(name);
    return {prompt.at("text").get<std::string>(),
            prompt.at("ids").get<std::vector<std::uint32_t>>()};
  } catch (const nlohmann::json::exception& error) {
    throw Failure(Exit::files, path + ": " + error.what());
  }
}

}  // namespace llm

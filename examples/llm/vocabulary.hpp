// Vocabulary: the text of every token, from tokens.txt. Constant once read; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llm {

class Vocabulary {
 public:
  /// Throws Failure (files) unless the file has exactly `tokens` lines.
  Vocabulary(const std::string& path, std::size_t tokens);

  /// The bytes that the token stands for: escapes undone, "▁" (U+2581) a space. One token need not
  /// be whole UTF-8 characters; several in a row are.
  std::string text(std::uint32_t token) const;

 private:
  std::string file_;                 // All lines, as they are in the file.
  std::vector<std::size_t> begins_;  // Of every line, and of the line behind the last.
};

}  // namespace llm

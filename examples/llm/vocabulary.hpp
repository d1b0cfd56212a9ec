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

  /// Returns the bytes of the token: escapes are decoded, and "▁" (U+2581) is a space. A single
  /// token may be incomplete UTF-8; several in a row are whole characters.
  std::string text(std::uint32_t token) const;

 private:
  std::string file_;                 // All lines, unchanged.
  std::vector<std::size_t> begins_;  // Begin of every line, and of the line after the last.
};

}  // namespace llm

// tokens.txt: one token a line; "\\" is a backslash, "\xHH" a byte.
#include "vocabulary.hpp"

#include <fstream>
#include <iterator>
#include <string_view>

#include "failure.hpp"

namespace llm {

Vocabulary::Vocabulary(const std::string& path, std::size_t tokens) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Failure(Exit::files, path + ": cannot be opened; examples/llm/prepare makes it");
  }
  file_.assign(std::istreambuf_iterator<char>(file), {});
  begins_.reserve(tokens + 1);
  begins_.push_back(0);
  for (std::size_t at = file_.find('\n'); at != std::string::npos; at = file_.find('\n', at + 1)) {
    begins_.push_back(at + 1);
  }
  if (begins_.size() != tokens + 1 || begins_.back() != file_.size()) {
    throw Failure(Exit::files, path + ": has " + std::to_string(begins_.size() - 1) +
                                   " lines; the model has " + std::to_string(tokens) + " tokens");
  }
}

std::string Vocabulary::text(std::uint32_t token) const {
  constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581.
  std::string_view line = file_;
  line = line.substr(begins_[token], begins_[token + 1] - begins_[token] - 1);
  std::string text;
  while (!line.empty()) {
    std::size_t used = 1;
    if (line.starts_with(kSpace)) {
      text += ' ';
      used = kSpace.size();
    } else if (line.starts_with("\\x") && line.size() >= 4) {
      text += static_cast<char>(std::stoi(std::string(line.substr(2, 2)), nullptr, 16));
      used = 4;
    } else if (line.starts_with("\\\\")) {
      text += '\\';
      used = 2;
    } else {
      text += line.front();
    }
    line.remove_prefix(used);
  }
  return text;
}

}  // namespace llm

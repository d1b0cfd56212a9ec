// Processes one character at a time: its length, whether it is plain, and its escape.
#include "base/shown.hpp"

#include <algorithm>
#include <cstdint>

namespace tiermem {
namespace {

constexpr std::size_t kLongestEscape = 8;  // \u{2028}

std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
             (byte(3) & 0x3f);
  }
}

/// Returns true for control characters, ends of lines and paragraphs, and marks that reorder text.
bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f || code == 0xfeff;
}

std::size_t put_hex(char* to, std::uint32_t value, unsigned digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (unsigned i = 0; i < digits; ++i) {
    to[i] = kDigits[value >> 4 * (digits - 1 - i) & 0xf];
  }
  return digits;
}

/// Writes the escape of one control character, or of a byte that begins no character.
std::size_t put_escape(char* to, std::uint32_t code) {
  to[0] = '\\';
  const char* const letter = code == '\n' ? "n" : code == '\t' ? "t" : code == '\r' ? "r" : nullptr;
  if (letter != nullptr) {
    to[1] = *letter;
    return 2;
  }
  if (code <= 0xff) {
    to[1] = 'x';
    return 2 + put_hex(to + 2, code, 2);
  }
  to[1] = 'u';
  to[2] = '{';
  put_hex(to + 3, code, 4);
  to[7] = '}';
  return kLongestEscape;
}

/// The next character of `text`, and whether it is shown unchanged.
struct Character {
  std::size_t length = 1;
  std::uint32_t code = 0;
  bool plain = false;
};

Character next_character(std::string_view text) {
  const std::size_t length = character_length(text);
  if (length == 0) {
    return {1, static_cast<unsigned char>(text.front()), false};
  }
  const std::uint32_t code = code_point(text.substr(0, length));
  return {length, code, !is_control(code)};
}

}  // namespace

std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) {
    return 1;
  }
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const bool wrong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
                     (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return wrong ? 0 : length;
}

std::string_view whole_characters(std::string_view text) noexcept {
  for (std::size_t tail = 1; tail <= 3 && tail <= text.size(); ++tail) {
    const auto first = static_cast<unsigned char>(text[text.size() - tail]);
    if (first >= 0xc2 && first <= 0xf4) {
      const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
      return length > tail ? text.substr(0, text.size() - tail) : text;
    }
    if ((first & 0xc0) != 0x80) {
      break;
    }
  }
  return text;
}

bool is_plain(std::string_view text) noexcept {
  while (!text.empty()) {
    const Character character = next_character(text);
    if (!character.plain) {
      return false;
    }
    text.remove_prefix(character.length);
  }
  return true;
}

std::size_t show_into(char* to, std::size_t room, std::string_view text) noexcept {
  std::size_t used = 0;
  while (!text.empty()) {
    const Character character = next_character(text);
    char escape[kLongestEscape];
    const std::size_t length =
        character.plain ? character.length : put_escape(escape, character.code);
    if (length > room - used) {
      break;
    }
    std::copy_n(character.plain ? text.data() : escape, length, to + used);
    used += length;
    text.remove_prefix(character.length);
  }
  return used;
}

std::string shown(std::string_view text) {
  if (is_plain(text)) {
    return std::string(text);
  }
  std::string out(text.size() * kLongestEscape, '\0');
  out.resize(show_into(out.data(), out.size(), text));
  return out;
}

}  // namespace tiermem

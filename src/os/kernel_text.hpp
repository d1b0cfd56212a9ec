// Parts of the text files that the kernel writes in /sys and /proc. Pure; any thread.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace tiermem {

/// Returns the text without the white space at its ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Returns the number that the whole text is, except for white space at its ends. A number after
/// "0x" has base 16.
inline std::optional<std::uint64_t> to_number(std::string_view text, int base = 10) {
  text = trimmed(text);
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size()
             ? std::optional<std::uint64_t>(value)
             : std::nullopt;
}

}  // namespace tiermem

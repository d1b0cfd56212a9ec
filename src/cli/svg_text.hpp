// Text inside of an SVG. One thread.
#pragma once

#include <string>
#include <string_view>

#include "base/shown.hpp"

namespace tiermem::cli {

/// Returns the text with escapes for XML, which allows no control characters.
inline std::string svg_text(std::string_view text) {
  std::string out;
  for (const char c : shown(text)) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

}  // namespace tiermem::cli

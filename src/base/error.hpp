// Building a Status with a sentence in it. For cold paths: it formats and allocates.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "base/arena.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

inline void set_text(char* field, std::size_t room, std::string_view text) {
  const std::size_t n = text.size() < room - 1 ? text.size() : room - 1;
  for (std::size_t i = 0; i < n; ++i) {
    field[i] = text[i];
  }
  field[n] = '\0';
}

template <std::size_t N>
void set_text(char (&field)[N], std::string_view text) {
  set_text(field, N, text);
}

/// As fmt::format, in the arena: for sentences of threads that must go on where malloc has nothing.
template <typename... Args>
String text(fmt::format_string<Args...> format, Args&&... args) {
  String made;
  fmt::format_to(std::back_inserter(made), format, std::forward<Args>(args)...);
  return made;
}

/// Ends the sentence in `info.text`, of which `formatted` bytes were made and the first
/// `sizeof(info.text) - 1` are there. The sentence is one line of plain text afterwards
/// (shown.hpp).
void end_text(ErrorInfo& info, std::size_t formatted) noexcept;

/// An ErrorInfo with its sentence; the caller adds tier, budget, holder and setting where it knows
/// them.
template <typename... Args>
ErrorInfo error_info(Code code, fmt::format_string<Args...> format, Args&&... args) {
  ErrorInfo info;
  info.code = code;
  const auto end =
      fmt::format_to_n(info.text, sizeof(info.text) - 1, format, std::forward<Args>(args)...);
  end_text(info, end.size);
  return info;
}

template <typename... Args>
Status fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(error_info(code, format, std::forward<Args>(args)...));
}

/// As fail(), with errno or a driver's code beside the sentence.
template <typename... Args>
Status fail_native(Code code, int native, fmt::format_string<Args...> format, Args&&... args) {
  ErrorInfo info = error_info(code, format, std::forward<Args>(args)...);
  info.native = native;
  return Status(info);
}

/// "1.5 GiB": for messages.
std::string human_bytes(std::uint64_t bytes);
/// "gpu", "dram", …; "unknown" for a number that is no kind.
const char* kind_name(Kind kind) noexcept;
/// A place as messages name it: "gpu 0", "dram".
std::string place_name(Place place);

}  // namespace tiermem

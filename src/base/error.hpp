// Construction of a Status with a message. For cold paths: it formats and allocates.
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

/// Formats as fmt::format does, into the arena. For messages of threads that must proceed when
/// malloc fails.
template <typename... Args>
String text(fmt::format_string<Args...> format, Args&&... args) {
  String made;
  fmt::format_to(std::back_inserter(made), format, std::forward<Args>(args)...);
  return made;
}

/// Terminates the message in `info.text`. `formatted` bytes were produced, and the first
/// `sizeof(info.text) - 1` of them are in `info.text`. Afterwards the message is one line of plain
/// text (shown.hpp).
void end_text(ErrorInfo& info, std::size_t formatted) noexcept;

/// Returns an ErrorInfo with its message. The caller adds the tier, budget, holder and setting that
/// it knows.
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

/// The same as fail(), with an errno or a driver's code in addition to the message.
template <typename... Args>
Status fail_native(Code code, int native, fmt::format_string<Args...> format, Args&&... args) {
  ErrorInfo info = error_info(code, format, std::forward<Args>(args)...);
  info.native = native;
  return Status(info);
}

/// Formats a size for messages: "1.5 GiB".
std::string human_bytes(std::uint64_t bytes);
/// Returns "gpu", "dram", …, or "unknown" for a number that is not a kind.
const char* kind_name(Kind kind) noexcept;
/// Formats a place for messages: "gpu 0", "dram".
std::string place_name(Place place);

}  // namespace tiermem

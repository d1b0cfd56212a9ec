// A message before a signal that may end the process. It goes to the log, or to descriptor 2 if the
// log is off. Without it the user has nothing to search for.
//
// Threads: any. Each message is one write.
#pragma once

#include "base/log.hpp"

namespace tiermem {

namespace detail {
void write_last_words(fmt::string_view format, fmt::format_args args) noexcept;
}  // namespace detail

template <typename... Args>
void last_words(fmt::format_string<Args...> format, Args&&... args) {
  detail::write_last_words(format, fmt::make_format_args(args...));
}

}  // namespace tiermem

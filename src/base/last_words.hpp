// A sentence before a signal that may end the process: to the log, or to descriptor 2 where the log
// is off. A process that dies without a word leaves its user nothing to search for.
//
// Threads: any. Each sentence is one write.
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

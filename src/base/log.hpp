// What tiermem tells a person while it runs. One log for the process, off until log_open(); a
// message that is off costs one relaxed load, formats nothing and allocates nothing. Never writes
// to descriptors 1 or 2 unless log_open() was given "stderr".
//
// Threads: any, at any time, also inside tiermem; each message is one write. After fork the child's
// log is off until it opens its own.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tiermem/status.hpp"

namespace tiermem {

/// Each level includes those before it.
enum class LogLevel : std::uint8_t { off, error, warn, info, debug };

namespace detail {
// Written by log_open, log_close and the child of fork; read by every message. Relaxed: a message
// near the change may fall on either side, and the sink behind it is published under a mutex.
extern std::atomic<LogLevel> log_level;
void log_write(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept;
}  // namespace detail

/// Opens the log: `target` is a path, appended to and created 0600, or "stderr". Replaces an open
/// log. `level` off closes it and `target` is not touched. Errors: io_error with errno and the
/// path.
Status log_open(LogLevel level, std::string_view target);
void log_close() noexcept;
/// The log's part in a fork, once for the process. Who has handlers that log calls this before it
/// registers them: theirs then run while the log can be written.
void log_follow_forks() noexcept;
/// Messages that could not be written since the process began (disk full, for example).
std::uint64_t log_dropped() noexcept;

inline bool log_enabled(LogLevel level) noexcept {
  return level <= detail::log_level.load(std::memory_order_relaxed);
}

template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::error)) {
    detail::log_write(LogLevel::error, format, fmt::make_format_args(args...));
  }
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::warn)) {
    detail::log_write(LogLevel::warn, format, fmt::make_format_args(args...));
  }
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::info)) {
    detail::log_write(LogLevel::info, format, fmt::make_format_args(args...));
  }
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::debug)) {
    detail::log_write(LogLevel::debug, format, fmt::make_format_args(args...));
  }
}

}  // namespace tiermem

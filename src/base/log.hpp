// What tiermem tells a person while it runs. One log for the process, off until log_open(); a
// message that is off costs one relaxed load, formats nothing and allocates nothing. Never writes
// to descriptor 1. Writes to descriptor 2 only if log_open() was given "stderr", but for one line
// in the life of a process: the first sentence that tell() gets while no log is open.
//
// Each message is one line: bytes that are no plain text are escaped (shown.hpp).
//
// Threads: any, at any time, also inside tiermem; each message is one write. After fork the child's
// log is off until it opens its own.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
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

/// For what a person must learn of the configuration although no log is open. Each sentence goes to
/// the log if it is open at `level`. Otherwise one line is written to descriptor 2: the first
/// sentence, and how many others there are. Later calls write nothing, and a repeated sentence is
/// written once. Nothing is written where descriptor 2 is closed, is no longer what it was when the
/// process began, or would block. Never fails.
void tell(LogLevel level, std::span<const std::string> sentences) noexcept;
void tell(LogLevel level, const std::string& sentence) noexcept;
/// The lines that tell() may write to descriptor 2 from now on: 1 unless set. For programs of
/// tiermem's own, which own their descriptor 2; each sentence then has a line of its own.
void set_tell_limit(unsigned lines) noexcept;

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

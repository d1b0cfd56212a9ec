// Messages of tiermem to a person while it runs. The process has one log, which is off until
// log_open(). A message that is off costs one relaxed load, formats nothing and allocates nothing.
// The log never writes to descriptor 1. It writes to descriptor 2 only if log_open() was given
// "stderr", with one exception: the first sentence that tell() gets while no log is open, once per
// process.
//
// Each message is one line: bytes that are not plain text are escaped (shown.hpp).
//
// Threads: any, at any time, also inside tiermem. Each message is one write. After fork() the
// child's log is off until the child opens its own.
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
// Written by log_open, log_close and the child of fork(); read by every message. Relaxed: a message
// near the change may fall on either side. A mutex publishes the sink behind it.
extern std::atomic<LogLevel> log_level;
void log_write(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept;
}  // namespace detail

/// Opens the log, and replaces an open one.
///
/// - `level`: `off` closes the log and leaves `target` untouched.
/// - `target`: a path, which is appended to and created with mode 0600, or "stderr".
/// - Errors: io_error with errno and the path.
Status log_open(LogLevel level, std::string_view target);
void log_close() noexcept;
/// Registers the log's fork handlers, once per process. A module that logs in its fork handlers
/// must call this before it registers them: they then run while the log can be written.
void log_follow_forks() noexcept;
/// Returns the number of messages that could not be written since the process began, for example
/// because the disk was full.
std::uint64_t log_dropped() noexcept;

/// Reports facts about the configuration that a person must learn even while no log is open. Each
/// sentence goes to the log if it is open at `level`. Otherwise one line goes to descriptor 2: the
/// first sentence, and the number of others. Later calls write nothing, and a repeated sentence is
/// written once.
///
/// Nothing is written if descriptor 2 is closed, would block, or is no longer the file that it was
/// when the process began. Never fails.
void tell(LogLevel level, std::span<const std::string> sentences) noexcept;
void tell(LogLevel level, const std::string& sentence) noexcept;
/// Sets the max number of lines that tell() may write to descriptor 2 from now on; the default is
/// 1. For tiermem's own programs, which own their descriptor 2: each sentence then has its own
/// line.
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

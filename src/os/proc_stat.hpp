// The contents of /proc/<pid>/stat for a process or one of its threads. Reads the file once,
// allocates nothing, and may change errno.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/results.hpp"

namespace tiermem {

class ProcStat {
 public:
  /// The fields in use, as proc(5) numbers them.
  enum Field {
    kState = 3,
    kFlags = 9,
    kUserTicks = 14,
    kSystemTicks = 15,
    kThreads = 20,
    kStart = 22,
    kProcessor = 39
  };

  explicit ProcStat(const char* path) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      return;
    }
    const ssize_t got = ::read(file, text_, sizeof text_);
    best_effort(::close(file), "the descriptor is gone in any case");
    const std::string_view all(text_, got > 0 ? static_cast<std::size_t>(got) : 0);
    // The name, field 2, may contain any character; it ends at the last parenthesis.
    const std::size_t name_begin = all.find('(');
    const std::size_t name_end = all.rfind(')');
    if (name_begin < name_end && name_end < all.size()) {
      name_ = all.substr(name_begin + 1, name_end - name_begin - 1);
    }
    rest_ = name_end < all.size() ? all.substr(name_end + 1) : std::string_view();
  }
  ProcStat(const ProcStat&) = delete;
  ProcStat& operator=(const ProcStat&) = delete;

  bool found() const { return !rest_.empty(); }
  /// Returns the name that the kernel has, of up to 15 characters. Empty if there is none.
  std::string_view name() const { return name_; }
  /// Returns the state of the main thread: 'R', 'S', 'Z', …, or '?' if there is none.
  char state() const {
    const std::string_view at = from(kState);
    return at.empty() ? '?' : at.front();
  }
  /// Returns a field, or -1 if there is none.
  std::int64_t number(Field field) const {
    const std::string_view at = from(field);
    std::int64_t value = -1;
    (void)std::from_chars(at.data(), at.data() + at.size(), value);
    return value;
  }

 private:
  std::string_view from(Field field) const {
    std::string_view at = rest_;
    for (int before = kState - 1; before < field && !at.empty(); ++before) {
      at.remove_prefix(std::min(at.find(' '), at.size() - 1) + 1);
    }
    return at;
  }

  char text_[1024];
  std::string_view name_;  // In the text.
  std::string_view rest_;  // From the space before the state to the end.
};

}  // namespace tiermem

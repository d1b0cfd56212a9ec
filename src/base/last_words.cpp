#include "base/last_words.hpp"

#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "base/arena.hpp"
#include "base/results.hpp"

namespace tiermem::detail {

void write_last_words(fmt::string_view format, fmt::format_args args) noexcept {
  if (log_enabled(LogLevel::error)) {
    log_write(LogLevel::error, format, args);
    return;
  }
  const ArenaScope scope;
  const int saved_errno = errno;
  try {
    fmt::memory_buffer text;
    fmt::format_to(std::back_inserter(text), "tiermem: ");
    fmt::vformat_to(std::back_inserter(text), format, args);
    text.push_back('\n');
    best_effort(::write(STDERR_FILENO, text.data(), text.size()),
                "a closed descriptor 2 is the program's own choice");
  } catch (...) {
    // The allocation of the message failed: the signal comes without one.
  }
  errno = saved_errno;
}

}  // namespace tiermem::detail

// The thread's last error, and the only conversion from C++ results to a tm_status. Every exported
// function ends in guarded(), and no exception passes it.
//
// Threads: each thread has its own error, a plain record in static thread-local storage, so a
// failure allocates no memory. Success writes nothing.
#pragma once

#include <utility>

#include "base/error.hpp"
#include "layout.hpp"

namespace tiermem::c_abi {

/// Returns this thread's last error, with code ok if there was none. Valid until the thread's next
/// failure.
const ErrorInfo& last_error() noexcept;
/// Stores `info` as the last error and returns its code.
tm_status keep(const ErrorInfo& info) noexcept;
tm_status keep(const Status& status) noexcept;
/// Stores the current exception as the last error. Only for a catch block.
tm_status keep_exception() noexcept;

/// Refuses a call with a message.
template <typename... Args>
[[gnu::cold, gnu::noinline]] tm_status refuse(Code code, fmt::format_string<Args...> format,
                                              Args&&... args) noexcept {
  return keep(error_info(code, format, std::forward<Args>(args)...));
}

/// Runs `call`, which returns a Status, and converts the result.
template <typename Call>
tm_status guarded(Call&& call) noexcept {
  try {
    const Status status = call();
    if (status.ok()) [[likely]] {
      return TM_OK;
    }
    return keep(status);
  } catch (...) {
    return keep_exception();
  }
}

}  // namespace tiermem::c_abi

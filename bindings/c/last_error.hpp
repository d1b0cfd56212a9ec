// The thread's last error, and the one way from C++ results to a tm_status. guarded() is what every
// exported function ends in: nothing that is thrown passes it.
//
// Threads: each has an error of its own, a plain record in static thread-local storage, so that
// failing needs no memory. Success writes nothing.
#pragma once

#include <utility>

#include "base/error.hpp"
#include "layout.hpp"

namespace tiermem::c_abi {

/// This thread's last error; code ok when there was none. Valid until its next failure.
const ErrorInfo& last_error() noexcept;
/// Makes it the last error and returns its code.
tm_status keep(const ErrorInfo& info) noexcept;
tm_status keep(const Status& status) noexcept;
/// In a catch block only: says what was thrown.
tm_status keep_exception() noexcept;

/// Refuses a call, with a sentence.
template <typename... Args>
[[gnu::cold, gnu::noinline]] tm_status refuse(Code code, fmt::format_string<Args...> format,
                                              Args&&... args) noexcept {
  return keep(error_info(code, format, std::forward<Args>(args)...));
}

/// Runs `call`, which returns a Status, and translates.
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

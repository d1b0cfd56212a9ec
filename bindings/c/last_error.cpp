// Storage of a thread's last error.
#include "last_error.hpp"

#include <exception>
#include <new>
#include <type_traits>

namespace tiermem::c_abi {
namespace {

// Zero-initialised and never destroyed, so no code runs when a thread begins or ends.
static_assert(std::is_trivially_destructible_v<ErrorInfo>);
constinit thread_local ErrorInfo t_last_error;

}  // namespace

const ErrorInfo& last_error() noexcept {
  return t_last_error;
}

tm_status keep(const ErrorInfo& info) noexcept {
  t_last_error = info;
  return static_cast<tm_status>(info.code);
}

[[gnu::cold]] tm_status keep(const Status& status) noexcept {
  if (status.info() != nullptr) {
    return keep(*status.info());
  }
  ErrorInfo info;
  info.code = status.code();
  // If the message could not be allocated, the status has only its code.
  set_text(info.text,
           status.code() == Code::no_capacity
               ? "allocation of tiermem's own records failed; free memory or raise the limit"
               : status.message());
  return keep(info);
}

[[gnu::cold]] tm_status keep_exception() noexcept {
  ErrorInfo info;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    info.code = Code::no_capacity;
    set_text(info.text,
             "allocation of tiermem's own records failed; free memory or raise the limit");
  } catch (const std::exception& error) {
    info = error_info(Code::internal, "exception: {}", error.what());
  } catch (...) {
    info = error_info(Code::internal, "exception: its type is unknown");
  }
  return keep(info);
}

}  // namespace tiermem::c_abi

// Status and Result: how every tiermem call reports failure. Values, no exceptions; any thread.
// A code tells the caller what to do next; ErrorInfo says which tier, budget, holder and setting.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "tiermem/types.hpp"

namespace tiermem {

/// What happened, by what to do about it. Equal in value to the `TM_…` constants of the C ABI.
enum class Code : std::int32_t {
  ok = 0,
  invalid_argument,  ///< Fix the call.
  stale_handle,      ///< The buffer was freed, or the handle was never one.
  no_capacity,       ///< Free, release or wait; ErrorInfo names the tier, its budget and a holder.
  busy,              ///< Try again: pinned, or would have to wait and the timeout was 0.
  timed_out,         ///< The time given was not enough.
  cancelled,         ///< The operation was cancelled by its owner.
  unsupported,       ///< Choose another tier or option.
  unavailable,       ///< No driver, no device, no permission.
  io_error,          ///< A device refused; the bytes are where they were.
  discarded,         ///< A droppable buffer's bytes were dropped: recompute them.
  lost,              ///< The bytes are gone, and that is an error.
  shut_down,         ///< The context is closing, closed, or belongs to another process.
  internal,          ///< A defect of tiermem.
};

/// The name of a code, as in the C ABI without its prefix: "no_capacity". Never null.
TIERMEM_API const char* code_name(Code code) noexcept;

/// Everything a stranger needs to act on an error. Text fields are always terminated.
struct ErrorInfo {
  Code code = Code::ok;
  std::int32_t native = 0;  ///< errno, or the driver's code; 0 when there is none.
  Place tier{};             ///< Where it happened.
  Handle buffer = 0;
  std::uint64_t offset = 0;  ///< In the buffer, or on the device when `tier` is a block tier.
  std::uint64_t needed = 0;  ///< Bytes asked for.
  std::uint64_t budget = 0;  ///< Bytes the tier may use.
  std::uint64_t used = 0;    ///< Bytes it uses.
  std::uint64_t pinned = 0;  ///< Of these, bytes that cannot move.
  char holder[64] = {};      ///< Label of the buffer that holds most pinned bytes.
  char setting[64] = {};     ///< The option to change, as it is spelled.
  char text[256] = {};       ///< One sentence, all of the above that matters.
};

/// A code and, for failures, an ErrorInfo: the code alone where there is no memory for one.
/// Move-only; testing it costs one compare.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code) noexcept : code_(code) {}
  explicit Status(const ErrorInfo& info)
      : code_(info.code), info_(new (std::nothrow) ErrorInfo(info)) {}

  bool ok() const noexcept { return code_ == Code::ok; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return code_; }
  /// The sentence to show to a person; the code's name when there is no sentence.
  const char* message() const noexcept {
    return info_ != nullptr && info_->text[0] != '\0' ? info_->text : code_name(code_);
  }
  /// Detail of the failure, or nullptr. Owned by this Status.
  const ErrorInfo* info() const noexcept { return info_.get(); }
  Status clone() const { return info_ != nullptr ? Status(*info_) : Status(code_); }

 private:
  Code code_ = Code::ok;
  std::unique_ptr<const ErrorInfo> info_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }
  Result(Code code) : Result(Status(code)) {}

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Status& status() const& noexcept { return status_; }
  Status status() && noexcept { return std::move(status_); }
  const char* message() const noexcept { return status_.message(); }
  Code code() const noexcept { return status_.code(); }

  T& value() & { return assert(ok()), *value_; }
  const T& value() const& { return assert(ok()), *value_; }
  T&& value() && { return assert(ok()), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace tiermem

// Status and Result: how every tiermem call reports failure. They are values; tiermem uses no
// exceptions here. Any thread may use them. A code tells the caller what to do next; ErrorInfo
// names the tier, the budget, the holder and the setting.
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

/// The result of a call, named for what the caller does next. The values equal the `TM_…` constants
/// of the C ABI.
enum class Code : std::int32_t {
  ok = 0,
  invalid_argument,  ///< Fix the call.
  stale_handle,      ///< The buffer was freed, or the handle never existed.
  no_capacity,       ///< Free, release or wait; ErrorInfo names the tier, its budget and a holder.
  busy,         ///< Try again: the bytes are pinned, or the timeout is 0 and the call would wait.
  timed_out,    ///< The timeout expired first.
  cancelled,    ///< The owner cancelled the operation.
  unsupported,  ///< Choose another tier or option.
  unavailable,  ///< There is no driver, device or permission for it.
  io_error,     ///< A device refused the request; the bytes are where they were.
  discarded,    ///< A droppable buffer's bytes were dropped: recompute them.
  lost,         ///< The bytes are lost, and the loss is an error.
  shut_down,    ///< The context is closing, is closed, or belongs to another process.
  internal,     ///< A defect of tiermem.
};

/// Returns the name of a code, such as "no_capacity": the C name without its prefix. Never null.
TIERMEM_API const char* code_name(Code code) noexcept;

/// Everything needed to act on an error. Text fields are always terminated.
struct ErrorInfo {
  Code code = Code::ok;
  std::int32_t native = 0;   ///< errno, or the driver's code; 0 for none.
  Place tier{};              ///< The tier of the error.
  std::int32_t device = -1;  ///< Number of the device of `tier`, as in the option nvme; -1: none.
  Handle buffer = 0;
  std::uint64_t offset = 0;  ///< Offset in the buffer; on the device if `tier` is a block tier.
  std::uint64_t needed = 0;  ///< Bytes asked for.
  std::uint64_t budget = 0;  ///< Budget of the tier in bytes.
  std::uint64_t used = 0;    ///< Bytes that the tier uses.
  std::uint64_t pinned = 0;  ///< Part of `used` that cannot move.
  char holder[64] = {};      ///< Label of the buffer with the largest number of pinned bytes.
  char setting[64] = {};     ///< The option to change, as it is spelled.
  char text[256] = {};       ///< The message: one sentence with every fact above that matters.
};

/// A code and, for failures, an ErrorInfo. If the allocation of the ErrorInfo fails, the Status has
/// the code alone. Move-only; a test of it costs one compare.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code) noexcept : code_(code) {}
  explicit Status(const ErrorInfo& info)
      : code_(info.code), info_(new (std::nothrow) ErrorInfo(info)) {}

  bool ok() const noexcept { return code_ == Code::ok; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return code_; }
  /// Returns the message for a person, or the name of the code if there is no message.
  const char* message() const noexcept {
    return info_ != nullptr && info_->text[0] != '\0' ? info_->text : code_name(code_);
  }
  /// Returns the details of the failure, or nullptr. This Status owns them.
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

// Results of calls to the C library and the kernel. Each result is used, or is passed to one of
// these two functions. A test (tests/results/check) finds calls that drop their result in another
// way. Any thread.
#pragma once

#include <cstdlib>
#include <type_traits>

namespace tiermem {

/// Accepts that the call may fail; `why` says why a failure is harmless.
template <typename Result>
inline void best_effort(const Result&, [[maybe_unused]] const char* why) noexcept {
  static_assert(!std::is_void_v<Result>);
}

/// Asserts that a call succeeded which cannot fail: its arguments are valid, and it consumes no
/// resource that can run out. A failure is a defect of tiermem that could lose bytes, so it ends
/// the process.
///
/// - `result`: 0, or more for a call that counts; a failed call returns -1, or an error number in
///   the case of pthread functions.
inline void must(int result) noexcept {
  if (result != 0) [[unlikely]] {
    std::abort();
  }
}

}  // namespace tiermem

// Results of calls to the C library and the kernel: each is used, or given to one of these two. A
// test (tests/results/check) looks for calls whose result is dropped in another way. Any thread.
#pragma once

#include <cstdlib>
#include <type_traits>

namespace tiermem {

/// The call may fail, and all is well then: `why` says why.
template <typename Result>
inline void best_effort(const Result&, [[maybe_unused]] const char* why) noexcept {
  static_assert(!std::is_void_v<Result>);
}

/// The call cannot fail where it is made: its arguments are right, and it takes nothing that can
/// run out. `result`: 0, or above where the call counts something; a call that fails answers -1 or,
/// as those of pthread, an error number. A failure is a defect of tiermem, and going on would lose
/// bytes: it ends the process.
inline void must(int result) noexcept {
  if (result != 0) [[unlikely]] {
    std::abort();
  }
}

}  // namespace tiermem

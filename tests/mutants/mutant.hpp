// The switch of mutants, for sources that scripts/mutate has changed. All mutants are compiled into
// one program, and the environment chooses the living one. No other build uses this file.
#pragma once

#include <type_traits>

namespace tiermem_mutants {
/// Records that `id` was reached, and returns whether it is the living mutant. Any thread.
bool look(int id) noexcept;
}  // namespace tiermem_mutants

// Constant evaluation by the compiler uses the original code.
constexpr bool tm_mutant(int id) noexcept {
#ifdef TIERMEM_MUTANT_ALONE  // One mutant, or none (-1), as if the source itself were changed.
  return !std::is_constant_evaluated() && id == TIERMEM_MUTANT_ALONE;
#else
  return std::is_constant_evaluated() ? false : tiermem_mutants::look(id);
#endif
}

// A changed line may be code that a programmer would not write.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wreturn-type"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wunused"

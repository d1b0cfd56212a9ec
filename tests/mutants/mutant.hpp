// The switch of a mutant, for sources that scripts/mutate has changed: all mutants are compiled into
// one program, and the environment says which one is alive. Part of no other build.
#pragma once

#include <type_traits>

namespace tiermem_mutants {
/// Remembers that `id` was reached, and says whether it is the living one. Any thread.
bool look(int id) noexcept;
}  // namespace tiermem_mutants

// What is computed by the compiler stays as it was.
constexpr bool tm_mutant(int id) noexcept {
#ifdef TIERMEM_MUTANT_ALONE  // One of them, or none (-1), as if the source were like that.
  return !std::is_constant_evaluated() && id == TIERMEM_MUTANT_ALONE;
#else
  return std::is_constant_evaluated() ? false : tiermem_mutants::look(id);
#endif
}

// A changed line may be code that nobody would write.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wreturn-type"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wunused"

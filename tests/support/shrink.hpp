// Shortens a sequence of random calls that fails. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tiermem::test {

/// Returns a part of `calls` that still fails, and from which no single call can be left out.
/// `fails(calls)` runs a sequence from the start. Each part of a sequence must be legal.
template <typename Call, typename Fails>
std::vector<Call> shrink(std::vector<Call> calls, const Fails& fails) {
  for (std::size_t length = std::max<std::size_t>(calls.size() / 2, 1); length != 0; length /= 2) {
    for (std::size_t at = 0; at < calls.size();) {
      std::vector<Call> fewer = calls;
      const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(first, first + static_cast<std::ptrdiff_t>(std::min(length, calls.size() - at)));
      if (fails(fewer)) {
        calls = std::move(fewer);
      } else {
        at += length;
      }
    }
  }
  return calls;
}

}  // namespace tiermem::test

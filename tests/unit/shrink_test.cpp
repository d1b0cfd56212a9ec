// Sequences of calls that fail are shortened to the calls that matter.
#include "support/shrink.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tiermem::test {
namespace {

TEST(Shrink, two_calls_matter_then_only_these_are_left) {
  std::vector<int> calls(100);
  std::iota(calls.begin(), calls.end(), 0);
  for (const int other : {1, 50, 99}) {
    const auto fails = [&](const std::vector<int>& some) {
      const auto has = [&](int call) { return std::count(some.begin(), some.end(), call) == 1; };
      return has(0) && has(other);
    };
    EXPECT_EQ(shrink(calls, fails), (std::vector<int>{0, other}));
  }
}

TEST(Shrink, every_call_matters_then_all_are_left) {
  const std::vector<int> calls = {1, 2, 3};
  EXPECT_EQ(shrink(calls, [](const std::vector<int>& some) { return some.size() == 3; }), calls);
}

}  // namespace
}  // namespace tiermem::test

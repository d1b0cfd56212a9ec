// Runs of pages, compared with a simple model: a vector of flags.
#include "heap/page_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tiermem::heap {
namespace {

// First fit and the longest run, in the most obvious form.
std::uint32_t first_fit(const std::vector<bool>& taken, std::uint32_t n) {
  std::uint32_t run = 0;
  for (std::uint32_t page = 0; page < taken.size(); ++page) {
    run = taken[page] ? 0 : run + 1;
    if (run == n) {
      return page + 1 - n;
    }
  }
  return PageRuns::kNone;
}

std::uint32_t longest(const std::vector<bool>& taken) {
  std::uint32_t run = 0;
  std::uint32_t most = 0;
  for (const bool one : taken) {
    run = one ? 0 : run + 1;
    most = std::max(most, run);
  }
  return most;
}

// Property: taking and returning runs at random agrees with the model in every answer, for chunks
// of all sizes and for one that does not fill its last word.
TEST(PageRuns, taken_at_random_is_what_the_model_says) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 dice(seed);
  for (const std::uint32_t pages : {1u, 64u, 65u, 100u, 128u, 512u}) {
    PageRuns runs(pages);
    std::vector<bool> taken(pages);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> live;
    for (int i = 0; i < 1500; ++i) {
      if (live.empty() || dice() % 5 < 3) {
        const auto n = static_cast<std::uint32_t>(1 + dice() % std::max(1u, pages / 4));
        const std::uint32_t first = runs.take(n);
        ASSERT_EQ(first, first_fit(taken, n));
        if (first != PageRuns::kNone) {
          std::fill_n(taken.begin() + first, n, true);
          live.emplace_back(first, n);
        }
      } else {
        std::swap(live[dice() % live.size()], live.back());
        const auto [first, n] = live.back();
        live.pop_back();
        runs.give_back(first, n);
        std::fill_n(taken.begin() + first, n, false);
      }
      ASSERT_EQ(runs.longest(), longest(taken));
      const auto page = static_cast<std::uint32_t>(dice() % pages);
      ASSERT_EQ(runs.is_taken(page), taken[page]);
    }
  }
}

}  // namespace
}  // namespace tiermem::heap

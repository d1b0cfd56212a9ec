// Random sequences of legal calls. Each call is a number; the model chooses its meaning when the
// call is made. So every part of a sequence is legal as well, and a sequence that fails can be
// shortened.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/shrink.hpp"

namespace tiermem::contract {

/// Splits a number into choices.
class Choices {
 public:
  explicit Choices(std::uint64_t number) : number_(number) {}
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t chosen = number_ % n;
    number_ /= n;
    return chosen;
  }

 private:
  std::uint64_t number_;
};

/// The text of a run: empty if it succeeded, else its calls and the failed condition.
struct RunResult {
  std::string failure;
  std::string calls;
};

/// A model of a tier, which makes the calls. The first condition that does not hold is the failure.
class RandomModel {
 protected:
  /// The text of a call.
  std::ostream& say() { return calls_ << "  "; }
  void require(bool condition, const std::string& what) {
    if (!condition && failure_.empty()) {
      failure_ = what;
    }
  }
  /// Chooses one that fits; null if none does.
  template <typename Each, typename Fits>
  static Each* choose(std::vector<Each>& from, Choices& choices, const Fits& fits) {
    std::vector<Each*> all;
    for (Each& each : from) {
      if (fits(each)) {
        all.push_back(&each);
      }
    }
    return all.empty() ? nullptr : all[choices.below(all.size())];
  }
  bool failed() const { return !failure_.empty(); }
  RunResult result() const { return {failure_, calls_.str()}; }

 private:
  std::ostringstream calls_;
  std::string failure_;
};

/// Runs sequences by seed. `run(calls)` returns a RunResult. A failure is shortened and reported.
template <typename Run>
void run_random_calls(std::uint64_t seeds, std::size_t length, const Run& run) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> calls(length);
    for (std::uint64_t& call : calls) {
      call = random();
    }
    if (run(calls).failure.empty()) {
      continue;
    }
    calls = test::shrink(calls, [&](const auto& fewer) { return !run(fewer).failure.empty(); });
    const RunResult shortest = run(calls);
    ADD_FAILURE() << "seed " << seed << ": " << shortest.failure << "\nThe calls:\n"
                  << shortest.calls;
    return;
  }
}

}  // namespace tiermem::contract

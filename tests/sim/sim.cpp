// The simulator: the production mover, residency, policy and block tier on virtual time, with
// memories, devices and hands that delay, reorder and fail. A random workload from a seed; a plain
// map of bytes as the model; check_invariants() after every event.
//
//   tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--verbose]
//
// A failing seed is printed with its last operations, and `--seed S` replays it exactly. Exit code
// 0: all seeds passed; 1: one failed; 2: usage.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/sim/simulation.hpp"

namespace tiermem::sim {
namespace {

bool run_seed(std::uint64_t seed, std::uint64_t events, bool verbose) {
  auto simulation = std::make_unique<Simulation>(seed, verbose);
  try {
    simulation->run(events);
    return true;
  } catch (const std::runtime_error& failure) {
    std::printf("seed %llu FAILED: %s\nlast operations:\n", static_cast<unsigned long long>(seed),
                failure.what());
    for (const std::string& line : simulation->history()) {
      std::printf("  %s\n", line.c_str());
    }
    std::printf("replay: tiermem-sim --seed %llu --events %llu --verbose\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(events));
    (void)simulation.release();  // In the midst of its work: there is no end of it to run.
    return false;
  }
}

}  // namespace
}  // namespace tiermem::sim

int main(int argc, char** argv) {
  std::uint64_t seeds = 1000, first = 1, events = 400;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&]() -> std::uint64_t {
      if (i + 1 == argc) {
        std::fprintf(stderr, "tiermem-sim: %s needs a number\n", arg.c_str());
        std::exit(2);
      }
      return std::strtoull(argv[++i], nullptr, 10);
    };
    if (arg == "--seeds") {
      seeds = number();
    } else if (arg == "--first") {
      first = number();
    } else if (arg == "--seed") {
      first = number();
      seeds = 1;
    } else if (arg == "--events") {
      events = number();
    } else if (arg == "--verbose") {
      verbose = true;
    } else {
      std::fprintf(
          stderr,
          "usage: tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--verbose]\n");
      return 2;
    }
  }
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    if (!tiermem::sim::run_seed(seed, events, verbose)) {
      return 1;
    }
  }
  std::printf("%llu seeds passed, %llu events each\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(events));
  return 0;
}

// The simulator: the production mover, residency, policy and block tier on virtual time, with
// memories, devices and workers that delay, reorder and fail. A seed gives a random workload; the
// model is a plain map of bytes; check_invariants() runs after every event.
//
//   tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--memories] [--without NAME,...]
//               [--coverage] [--contention] [--figures] [--verbose]
//
// Runs the regression seeds (regressions.hpp) first, and then the given seeds. A failing seed is
// made smaller: fewer events, and without kinds of calls and faults, as long as it fails in the
// same way. The rest is printed with its last operations and the command that replays it.
// --memories gives the host 1 to 4 memories, by the seed; without it the host has one. The
// regression seeds have one. --coverage prints how often each change of phase, and of stage of a
// transfer, was taken. A quarter of the seeds begin with counters near their ends. One of 64
// touches a buffer of more than 2^20 extents first (sparse.hpp). --contention runs contention.hpp
// instead, from the same seeds. The last line is the digest of all runs (digest.hpp): a change of
// the mover that should change nothing keeps it. --figures prints what depends only on the seeds:
// the digest of each 20 runs, and the sums of the public counters over all runs. tests/sim/recorded
// compares them with those of the last commit. Exit code 0: all seeds passed; 1: one failed, or
// with --coverage a change was never taken; 2: usage.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "observe/counters.hpp"
#include "tests/sim/contention.hpp"
#include "tests/sim/coverage.hpp"
#include "tests/sim/regressions.hpp"
#include "tests/sim/simulation.hpp"
#include "tests/sim/sparse.hpp"

namespace tiermem::sim {
namespace {

/// One run.
struct Plan {
  std::uint64_t seed = 0, events = 0;
  std::vector<std::string> without;
  bool memories = false;
};
struct Failed {
  std::string why;
  std::uint64_t events = 0;  // Number of begun events.
  std::deque<std::string> history;
};
/// Totals over all runs.
struct Totals {
  std::uint64_t calls = 0, most_fruitless = 0, events = 0;
  std::int64_t calm_ns = 0, virtual_ns = 0;
  Digest digest;
  Stats stats;  // Only its counters.

  void add(const Simulation& simulation) {
    calls += simulation.calls();
    events += simulation.events();
    digest.add("run", simulation.digest());
    most_fruitless = std::max(most_fruitless, simulation.most_fruitless());
    calm_ns = std::max(calm_ns, simulation.calm_ns());
    virtual_ns += simulation.now();
    for (const Counter& counter : counter_table()) {
      stats.*counter.field += simulation.stats().*counter.field;
    }
  }
};

// It walks a million extents several times, which takes as long as some hundred seeds.
bool is_sparse(std::uint64_t seed) {
  return seed % 64 == 11;
}

std::optional<Failed> run(const Plan& plan, bool verbose, Totals& totals) {
  static const bool warmed_up = [] {  // Threads and process-wide records exist from then on.
    std::make_unique<Simulation>(1, false)->run(400);
    return true;
  }();
  const std::uint64_t blocks = warmed_up ? arena_stats().blocks : 0;
  std::optional<Failed> failed;
  try {
    if (is_sparse(plan.seed)) {
      touch_sparse_buffer(plan.seed);
    }
  } catch (const std::exception& failure) {
    return Failed{failure.what(), plan.events, {}};
  }
  auto simulation = std::make_unique<Simulation>(plan.seed, verbose, plan.without, plan.memories);
  try {
    simulation->run(plan.events);
  } catch (const std::exception& failure) {
    failed = {failure.what(), simulation->events(), simulation->history()};
  }
  totals.add(*simulation);
  if (failed) {
    (void)simulation.release();  // In the middle of its work, so its destructor cannot run.
    return failed;
  }
  simulation.reset();
  if (const std::uint64_t left = arena_stats().blocks - blocks; left != 0) {
    return Failed{fmt::format("of the mover's memory are {} blocks left", left), plan.events, {}};
  }
  return std::nullopt;
}

/// The message without its numbers.
std::string kind_of(const std::string& why) {
  return why.substr(0, why.find_first_of("0123456789"));
}

/// Finds a smaller run that fails in the same way.
Plan shrunk(Plan plan, Failed& failed) {
  Totals ignored;
  const auto still_fails = [&](const Plan& smaller) {
    std::optional<Failed> again = run(smaller, false, ignored);
    if (!again || kind_of(again->why) != kind_of(failed.why)) {
      return false;
    }
    failed = std::move(*again);
    plan = smaller;
    plan.events = std::min(plan.events, failed.events);
    return true;
  };
  plan.events = failed.events;
  const auto leave_out = [&](std::string_view name) {
    Plan smaller = plan;
    smaller.without.emplace_back(name);
    still_fails(smaller);
  };
  for (const auto& [fault, rate] : Swarm::kFaults) {
    leave_out(fault);
  }
  for (const std::string_view name :
       {"trouble", "inspect", "confirm", "tiers", "mapped_files", "compressed"}) {
    leave_out(name);
  }
  for (std::size_t i = 2; i < Swarm::kCalls.size(); ++i) {  // All except allocation and access.
    leave_out(Swarm::kCalls[i]);
  }
  for (std::uint64_t less = plan.events / 2; less > 0; less /= 2) {
    for (Plan smaller = plan; smaller.events > less; smaller = plan) {
      smaller.events -= less;
      if (!still_fails(smaller)) {
        break;
      }
    }
  }
  return plan;
}

bool passes(const Plan& plan, bool verbose, Totals& totals) {
  std::optional<Failed> failed = run(plan, verbose, totals);
  if (!failed) {
    return true;
  }
  const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf("seed %llu FAILED: %s\nreplay: tiermem-sim --seed %llu --events %llu%s --verbose\n",
              number(plan.seed), failed->why.c_str(), number(plan.seed), number(plan.events),
              plan.memories ? " --memories" : "");
  std::fflush(stdout);
  if (verbose) {
    return false;
  }
  const Plan smaller = shrunk(plan, *failed);
  std::string without;
  for (const std::string& name : smaller.without) {
    without += (without.empty() ? " --without " : ",") + name;
  }
  std::printf("smaller: %s\nlast operations:\n", failed->why.c_str());
  for (const std::string& line : failed->history) {
    std::printf("  %s\n", line.c_str());
  }
  std::printf("replay: tiermem-sim --seed %llu --events %llu%s%s --verbose\n", number(smaller.seed),
              number(smaller.events), plan.memories ? " --memories" : "", without.c_str());
  return false;
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

struct Options {
  std::uint64_t seeds = 1000, first = 1, events = 400;
  bool one = false, verbose = false, coverage = false, contention = false, memories = false;
  bool figures = false;
  std::vector<std::string> without;
};

// The runs of a line of --figures.
constexpr std::uint64_t kRunsOfFigure = 20;

void print_figures(const Totals& totals) {
  const auto line = [](const char* name, auto number) {
    std::printf("%s %llu\n", name, static_cast<unsigned long long>(number));
  };
  line("calls", totals.calls);
  line("events", totals.events);
  line("virtual_ns", totals.virtual_ns);
  line("most_fruitless", totals.most_fruitless);
  line("calm_ns", totals.calm_ns);
  for (const Counter& counter : counter_table()) {
    if (counter.field != &Stats::step_ns_p99) {  // Real time.
      line(counter.name, totals.stats.*counter.field);
    }
  }
}

bool run_all(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Coverage coverage;
  Totals totals;
  for (const Regression& known : kRegressions) {
    if (!options.one &&
        !passes(
            {known.seed, known.events, {"confirm", "tiers", "mapped_files", "compressed"}, false},
            false, totals)) {
      return false;
    }
  }
  for (std::uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    if (!passes({seed, options.events, options.without, options.memories}, options.verbose,
                totals)) {
      return false;
    }
    const std::uint64_t ended = seed - options.first + 1;
    if (options.figures && (ended % kRunsOfFigure == 0 || ended == options.seeds)) {
      std::printf("until_seed_%llu %016llx\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(totals.digest.value()));
    }
  }
  if (options.figures) {
    print_figures(totals);
    return true;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%llu seeds passed, %llu events each: %llu calls in %.1f s, %.0f a second\n",
              static_cast<unsigned long long>(options.seeds),
              static_cast<unsigned long long>(options.events),
              static_cast<unsigned long long>(totals.calls), seconds,
              static_cast<double>(totals.calls) / seconds);
  std::printf("%.0f ms after the faults nothing waited, %llu steps in a row did nothing, at most\n",
              static_cast<double>(totals.calm_ns) / 1e6,
              static_cast<unsigned long long>(totals.most_fruitless));
  std::printf("digest %016llx\n", static_cast<unsigned long long>(totals.digest.value()));
  return !options.coverage || coverage.print(options.memories);
}

// The longest wait relative to the median.
constexpr double kMostUnfair = 3;
// Bytes that are relocated for each requested byte: a requested extent comes at most once, and then
// one victim sinks for it. The rest is for those that climb.
constexpr double kMostRelocated = 1.5;
// Bytes that go to the slow tier for each requested byte: one victim leaves for each extent that
// comes, and its bytes go there once, at once or later.
constexpr double kMostToSlowTier = 1;

struct Contended {
  Graph graph;
  const char* name;
  const char* moves;  // Null: nothing has a bound but the wait.
  std::uint64_t Waits::*moved;
  double most;
};
constexpr Contended kContended[] = {
    {Graph::plain, "one memory", nullptr, nullptr, 0},
    {Graph::two_memories, "two memories", "were relocated", &Waits::relocated, kMostRelocated},
    {Graph::two_tiers, "two slot tiers", "went to the slow tier", &Waits::to_slow_tier,
     kMostToSlowTier},
};

bool contend_all(const Options& options, const Contended& of) {
  double worst = 0, moved = 0;
  std::uint64_t waiters = 0, worst_seed = 0;
  for (std::uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    try {
      const Waits waits = contend(seed, of.graph);
      if (of.moves != nullptr) {
        moved = std::max(
            moved, static_cast<double>(waits.*of.moved) / static_cast<double>(waits.requested));
      }
      waiters += waits.waiters;
      if (waits.ratio() > worst) {
        worst = waits.ratio();
        worst_seed = seed;
      }
    } catch (const std::exception& failure) {
      std::printf("contention, %s, seed %llu FAILED: %s\n", of.name,
                  static_cast<unsigned long long>(seed), failure.what());
      return false;
    }
  }
  std::printf(
      "%s: %llu waiters of %llu seeds: the oldest waited %.2f times as long as the median at "
      "most (seed %llu)%s\n",
      of.name, static_cast<unsigned long long>(waiters),
      static_cast<unsigned long long>(options.seeds), worst,
      static_cast<unsigned long long>(worst_seed),
      worst > kMostUnfair ? ": FAILED, 3 are allowed" : "");
  if (of.moves != nullptr) {
    std::printf("%.2f bytes %s for each requested byte at most%s\n", moved, of.moves,
                moved > of.most ? ": FAILED, too many" : "");
  }
  return worst <= kMostUnfair && moved <= of.most;
}

bool contend_all(const Options& options) {
  return std::all_of(std::begin(kContended), std::end(kContended),
                     [&](const Contended& of) { return contend_all(options, of); });
}

}  // namespace
}  // namespace tiermem::sim

int main(int argc, char** argv) {
  tiermem::sim::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 == argc) {
        std::fprintf(stderr, "tiermem-sim: %s needs a value\n", arg.c_str());
        std::exit(2);
      }
      return argv[++i];
    };
    const auto number = [&] { return std::strtoull(value(), nullptr, 10); };
    if (arg == "--seeds") {
      options.seeds = number();
    } else if (arg == "--first") {
      options.first = number();
    } else if (arg == "--seed") {
      options.first = number();
      options.seeds = 1;
      options.one = true;
    } else if (arg == "--events") {
      options.events = number();
    } else if (arg == "--without") {
      options.without = tiermem::sim::names_in(value());
    } else if (arg == "--memories") {
      options.memories = true;
    } else if (arg == "--coverage") {
      options.coverage = true;
    } else if (arg == "--contention") {
      options.contention = true;
    } else if (arg == "--figures") {
      options.figures = true;
    } else if (arg == "--verbose") {
      options.verbose = true;
    } else {
      std::fprintf(
          stderr,
          "usage: tiermem-sim [--seeds N] [--first S] [--seed S] [--events N] [--memories] "
          "[--without NAME,...] [--coverage] [--contention] [--figures] [--verbose]\n");
      return 2;
    }
  }
  const bool passed =
      options.contention ? tiermem::sim::contend_all(options) : tiermem::sim::run_all(options);
  return passed ? 0 : 1;
}

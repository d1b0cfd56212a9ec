// The rules, in order.
#include "cli/run_advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/shown.hpp"
#include "runtime/options.hpp"

namespace tiermem::cli {
namespace {

constexpr double kMuchWaiting = 0.2;
constexpr double kNearlyAll = 0.95;

/// A round size slightly above `bytes`.
std::string generous_size(std::uint64_t bytes) {
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 8, 1 << 20);
  return format_size(round_up(bytes, step));
}

std::string against_waiting(const RunSummary& run) {
  const std::uint64_t needed = run.totals.counters.tiered_peak;
  if (needed > run.dram) {
    return fmt::format("more --dram helps, and {} would hold all allocated memory",
                       generous_size(needed));
  }
  return run.totals.joined > 1 ? "each process kept to its share; more --dram makes it larger"
                               : "more --dram does not help, because it holds all allocated memory";
}

// The cause of the waits: reads, or the writes that make room.
std::string waited_for(const RunCounters& total) {
  constexpr double kHardly = 0.05;
  const double part =
      static_cast<double>(total.waited_for_room_ns) / static_cast<double>(total.waited_ns);
  const char* const others = "for other memory to leave";
  const char* const own = total.promoted == 0 ? "for fresh memory" : "for bytes to be read";
  if (part < kHardly) {
    return own;
  }
  return part > 1 - kHardly
             ? others
             : fmt::format("{:.0f} % {}, {:.0f} % {}", 100 * part, others, 100 * (1 - part), own);
}

// "python3 (12) and 3 more": processes with the same sentence.
struct Alike {
  std::string first;
  std::size_t more = 0;
  std::string sentence;
  std::uint64_t memory = 0;
};

void add_alike(std::vector<Alike>& all, std::string process, std::string sentence,
               std::uint64_t memory) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const Alike& one) { return one.sentence == sentence; });
  if (at == all.end()) {
    all.push_back({std::move(process), 0, std::move(sentence), memory});
  } else {
    at->more += 1;
    at->memory = std::max(at->memory, memory);
  }
}

std::string named(const char* name, std::uint32_t pid) {
  return fmt::format("{} ({})", shown(name), pid);
}

}  // namespace

std::vector<std::string> troubles(const RunSummary& run) {
  std::vector<Alike> all;
  for (const RunRefusal& refusal : run.refusals) {
    add_alike(all, named(refusal.name, refusal.pid), shown(refusal.text), 0);
  }
  for (const Outsider& outsider : run.outsiders) {
    add_alike(all, named(outsider.name.c_str(), outsider.pid),
              "no memory of this process is tiered: " + outsider.why, outsider.memory_peak);
  }
  for (const RunProcess& process : run.processes) {
    if (process.counters.poisoned != 0) {
      add_alike(all, named(process.name, process.pid),
                fmt::format("touches of unreadable pages end in SIGBUS{}{}",
                            process.text[0] != '\0' ? ": " : "", shown(process.text)),
                0);
    }
  }
  std::vector<std::string> lines;
  if (!run.limits.empty()) {
    lines.push_back(run.limits);
  }
  for (const Alike& one : all) {
    lines.push_back(fmt::format(
        "{}{}: {}{}", one.first, one.more != 0 ? fmt::format(" and {} more", one.more) : "",
        one.sentence,
        one.memory != 0 ? fmt::format("; up to {} were outside the budget", human_bytes(one.memory))
                        : ""));
  }
  if (run.totals.refused > run.refusals.size()) {
    lines.push_back(
        fmt::format("{} more processes were not tiered", run.totals.refused - run.refusals.size()));
  }
  return lines;
}

double waited_part(const RunSummary& run) {
  return run.seconds > 0 ? static_cast<double>(run.totals.counters.waited_ns) / 1e9 / run.seconds
                         : 0;
}

std::vector<std::string> advice(const RunSummary& run) {
  const RunCounters& total = run.totals.counters;
  if (!run.host) {
    return {"only GPU memory was to be tiered, and the run does not count it"};
  }
  if (run.totals.joined == 0) {
    if (run.totals.refused != 0 || !run.outsiders.empty()) {
      return {};  // troubles() says why.
    }
    return {fmt::format("nothing was tiered: no process took more than {} through malloc or mmap",
                        human_bytes(run.start))};
  }
  std::vector<std::string> lines;
  if (total.poisoned > 0) {
    lines.push_back(fmt::format(
        "{} pages could not be read back, and touching them ends in SIGBUS: --log warn:FILE names "
        "the device",
        total.poisoned));
  }
  const double room = static_cast<double>(run.dram) + static_cast<double>(run.block);
  if (static_cast<double>(total.tiered_peak) > kNearlyAll * room) {
    lines.push_back(
        run.block == 0
            ? fmt::format("{} were allocated, but there is no block tier for memory above the DRAM "
                          "budget of {}: name one with --nvme /directory:SIZE",
                          human_bytes(total.tiered_peak), human_bytes(run.dram))
            : fmt::format("{} were allocated, and DRAM and block tier hold {} together: a larger "
                          "cap in --nvme makes room",
                          human_bytes(total.tiered_peak), human_bytes(run.dram + run.block)));
  }
  if (waited_part(run) > kMuchWaiting) {
    lines.push_back(fmt::format("threads waited for {:.1f} s in total during {:.1f} s: {}; {}",
                                static_cast<double>(total.waited_ns) / 1e9, run.seconds,
                                waited_for(total), against_waiting(run)));
  }
  return lines;
}

}  // namespace tiermem::cli

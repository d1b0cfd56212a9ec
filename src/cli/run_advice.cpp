// The rules, one after the other.
#include "cli/run_advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "runtime/options.hpp"

namespace tiermem::cli {
namespace {

constexpr double kMuchWaiting = 0.2;
constexpr double kNearlyAll = 0.95;

/// A little more than `bytes`, as one would write it.
std::string generous_size(std::uint64_t bytes) {
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 8, 1 << 20);
  return format_size((bytes + step - 1) / step * step);
}

std::string against_waiting(const RunSummary& run) {
  const std::uint64_t needed = run.totals.counters.tiered_peak;
  if (needed > run.dram) {
    return fmt::format("more --dram helps, and {} would hold all that was allocated",
                       generous_size(needed));
  }
  return run.totals.joined > 1 ? "each process kept to its share; more --dram makes it larger"
                               : "not for want of --dram, which holds all that was allocated";
}

}  // namespace

double waited_part(const RunSummary& run) {
  return run.seconds > 0 ? static_cast<double>(run.totals.counters.waited_ns) / 1e9 / run.seconds
                         : 0;
}

std::vector<std::string> advice(const RunSummary& run) {
  const RunCounters& total = run.totals.counters;
  if (!run.host) {
    return {"only the memory of GPUs was to be tiered, and of that nothing is counted here"};
  }
  if (run.totals.joined == 0) {
    return {
        "nothing was tiered: no process took more than 32 MiB through "
        "malloc or mmap"};
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
            ? fmt::format("{} were allocated and there is no block tier to take what exceeds the "
                          "DRAM budget of {}: name one with --nvme /directory:SIZE",
                          human_bytes(total.tiered_peak), human_bytes(run.dram))
            : fmt::format("{} were allocated, and DRAM and block tier hold {} together: a larger "
                          "cap in --nvme makes room",
                          human_bytes(total.tiered_peak), human_bytes(run.dram + run.block)));
  }
  if (waited_part(run) > kMuchWaiting) {
    lines.push_back(
        fmt::format("threads waited for bytes to be read for {:.1f} s, all added up, "
                    "in {:.1f} s: {}",
                    static_cast<double>(total.waited_ns) / 1e9, run.seconds, against_waiting(run)));
  }
  return lines;
}

}  // namespace tiermem::cli

// The table of processes, the JSON, and the line on a terminal.
#include "cli/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> cells(std::string name, std::string pid, const RunCounters& counters,
                               std::string note) {
  return {std::move(name),
          std::move(pid),
          human_bytes(counters.tiered_peak),
          human_bytes(counters.resident_peak),
          human_bytes(counters.promoted),
          human_bytes(counters.demoted),
          human_count(static_cast<double>(counters.faults)),
          counters.waited_ns == 0 ? "0" : human_time(static_cast<double>(counters.waited_ns) / 1e9),
          std::move(note)};
}

std::string table_of(const RunSummary& run, bool terminal, unsigned width) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"PROCESS"},
               {"PID", kRight},
               {"TIERED", kRight},
               {"RESIDENT", kRight},
               {"READ", kRight},
               {"WRITTEN", kRight},
               {"FAULTS", kRight},
               {"WAITED", kRight},
               {"LIMITED BY"}});
  for (const RunProcess& process : run.processes) {
    table.add(cells(process.name, std::to_string(process.pid), process.counters, process.text));
  }
  const std::uint64_t others =
      run.totals.joined - std::min<std::uint64_t>(run.totals.joined, run.processes.size());
  table.add(cells("total", "", run.totals.counters,
                  others > 0 ? fmt::format("with {} more processes", others) : ""));
  return table.text(terminal, terminal && stderr_has_colours(), width);
}

Json counters_json(const RunCounters& counters) {
  return {{"tiered_bytes_peak", counters.tiered_peak},
          {"resident_bytes_peak", counters.resident_peak},
          {"read_bytes", counters.promoted},
          {"written_bytes", counters.demoted},
          {"faults", counters.faults},
          {"waited_s", static_cast<double>(counters.waited_ns) / 1e9},
          {"waited_for_room_s", static_cast<double>(counters.waited_for_room_ns) / 1e9},
          {"evicted", counters.evicted},
          {"poisoned_pages", counters.poisoned}};
}

}  // namespace

std::string report_text(const RunSummary& run, bool terminal, unsigned width) {
  std::string text = fmt::format(
      "tiermem: {} process{} tiered in {}, under {} of DRAM and {}\n", run.totals.joined,
      run.totals.joined == 1 ? "" : "es", human_time(run.seconds), human_bytes(run.dram),
      run.block == 0 ? "no block tier" : human_bytes(run.block) + " of block tier");
  if (run.totals.joined > 0) {
    text += table_of(run, terminal, width);
  }
  const std::vector<std::string> lines = advice(run);
  for (const std::string& line : lines) {
    text += fmt::format("tiermem: {}\n", line);
  }
  const std::vector<std::string> outside = troubles(run);
  for (const std::string& line : outside) {
    text += fmt::format("tiermem: {}\n", line);
  }
  return lines.empty() && outside.empty() ? text + "tiermem: nothing limited it\n" : text;
}

Json report_json(const RunSummary& run, int status) {
  Json processes = Json::array();
  for (const RunProcess& process : run.processes) {
    Json row = {{"name", process.name},
                {"pid", process.pid},
                {"live", process.live},
                {"limited_by", process.text}};
    row.update(counters_json(process.counters));
    processes.push_back(std::move(row));
  }
  Json outside = Json::array();
  for (const RunRefusal& refusal : run.refusals) {
    outside.push_back({{"name", refusal.name}, {"pid", refusal.pid}, {"reason", refusal.text}});
  }
  for (const Outsider& outsider : run.outsiders) {
    outside.push_back({{"name", outsider.name},
                       {"pid", outsider.pid},
                       {"reason", outsider.why},
                       {"memory_bytes_peak", outsider.memory_peak}});
  }
  return {{"status", status},
          {"seconds", run.seconds},
          {"dram_bytes", run.dram},
          {"block_bytes", run.block},
          {"joined", run.totals.joined},
          {"total", counters_json(run.totals.counters)},
          {"processes", std::move(processes)},
          {"not_tiered", std::move(outside)},
          {"troubles", troubles(run)},
          {"advice", advice(run)}};
}

std::string live_line(const RunSummary& run, const RunSummary& before, std::size_t width) {
  const RunCounters& now = run.totals.counters;
  const RunCounters& then = before.totals.counters;
  const double seconds = std::max(run.seconds - before.seconds, 1e-3);
  const auto rate = [&](std::uint64_t RunCounters::*field) {
    // Never below zero, even if processes that have ended lower the sums.
    return static_cast<double>(now.*field - std::min(now.*field, then.*field)) / seconds;
  };
  const auto live = std::count_if(run.processes.begin(), run.processes.end(),
                                  [](const RunProcess& process) { return process.live; });
  // The most useful columns come first: a narrow terminal drops the last ones.
  const std::array columns = {
      fmt::format("{}/{} resident", human_bytes(now.resident), human_bytes(run.dram)),
      fmt::format("{:.1f} waiting", rate(&RunCounters::waited_ns) / 1e9),
      fmt::format("read {}", human_rate(rate(&RunCounters::promoted))),
      fmt::format("wrote {}", human_rate(rate(&RunCounters::demoted))),
      fmt::format("{} live", live),
      fmt::format("{} tiered", human_bytes(now.tiered))};
  std::string line = "tiermem: ";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string next = (i == 0 ? "" : ", ") + columns[i];
    if (i > 0 && line.size() + next.size() > width) {
      break;
    }
    line += next;
  }
  return line;
}

}  // namespace tiermem::cli

// Loads traces, shows progress, and prints the tables.
#include "cli/replay_offline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/json_file.hpp"
#include "cli/miss_curves.hpp"
#include "cli/picture.hpp"
#include "cli/read_file.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {
namespace {

constexpr double kBarColumns = 24;

/// For terminals only; the figure beside it is for programs.
std::string bar(double value, double most) {
  if (!is_utf8_locale()) {
    const double part = most > 0 ? std::clamp(value / most, 0.0, 1.0) : 0;
    return std::string(static_cast<std::size_t>(part * kBarColumns + 0.5), '#');
  }
  const double eighths = most > 0 ? std::clamp(value / most, 0.0, 1.0) * kBarColumns * 8 : 0;
  std::string out;
  for (int whole = static_cast<int>(eighths) / 8; whole > 0; --whole) {
    out += "█";
  }
  constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  return out + kParts[static_cast<int>(eighths) % 8];
}

std::string points(double ratio) {
  return fmt::format("{:.1f}", 100 * ratio);
}

void print_trace(const MissRatios& trace, const std::vector<double>& shares) {
  print_title(
      fmt::format("{}: {} references to {} blocks", trace.trace, trace.references, trace.blocks));
  std::vector<Table::Column> columns = {{"MISSES, IN %, WITH A MEMORY OF"}};
  for (const double share : shares) {
    columns.push_back({fmt::format("{:g} %", share), Table::Align::right});
  }
  Table table(std::move(columns));
  for (const MissRatios::Row& row : trace.rows) {
    std::vector<std::string> cells = {row.policy};
    for (const double miss : row.at) {
      cells.push_back(fmt::format("{:.2f}", 100 * miss));
    }
    table.add(std::move(cells));
  }
  table.print();
  const MissRatios::Row* hinted = trace.find(kHinted);
  const MissRatios::Row* lru = trace.find("lru");
  if (hinted != nullptr && lru != nullptr) {
    std::string closed;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const double gap = lru->at[i] - trace.find("min")->at[i];
      closed += fmt::format(
          "{}{:g} %: {}", i == 0 ? "" : ", ", shares[i],
          gap > 0 ? fmt::format("{:.2f}", (lru->at[i] - hinted->at[i]) / gap) : "no gap");
    }
    print_text("Share of the gap between LRU and MIN that the hints close, at " + closed);
  }
  fmt::print("\n");
}

void print_summary(const std::vector<MissRatios>& traces, const OfflineArguments& arguments) {
  std::vector<std::pair<std::string, Summary>> rows;
  double most = 0;
  for (const std::string& policy : arguments.table.policies) {
    if (policy != "min") {
      rows.emplace_back(policy, summarise(traces, arguments.table.shares, policy));
      most = std::max(most, rows.back().second.gap);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.gap < b.second.gap; });
  Table table({{"MEAN OVER MIN, IN POINTS"},
               {"", Table::Align::right},
               {""},
               {"WORST OVER LRU", Table::Align::right},
               {""}});
  for (const auto& [policy, summary] : rows) {
    const bool compared = !summary.worst_cell.empty() && policy != "lru";
    table.add({policy, points(summary.gap), stdout_is_terminal() ? bar(summary.gap, most) : "",
               compared ? points(summary.over_lru) : "", compared ? summary.worst_cell : ""});
  }
  table.print();
}

nlohmann::ordered_json to_json(const std::vector<MissRatios>& traces,
                               const OfflineArguments& arguments) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const MissRatios& trace : traces) {
    nlohmann::ordered_json misses;
    for (const MissRatios::Row& row : trace.rows) {
      misses[row.policy] = row.at;
    }
    all.push_back({{"trace", trace.trace},
                   {"references", trace.references},
                   {"blocks", trace.blocks},
                   {"miss_ratio", std::move(misses)}});
  }
  nlohmann::ordered_json gaps, over;
  for (const std::string& policy : arguments.table.policies) {
    const Summary summary = summarise(traces, arguments.table.shares, policy);
    gaps[policy] = summary.gap;
    if (!summary.worst_cell.empty()) {
      over[policy] = summary.over_lru;
    }
  }
  return {{"shares_percent", arguments.table.shares},
          {"traces", std::move(all)},
          {"mean_gap_to_min", std::move(gaps)},
          {"worst_over_lru", std::move(over)}};
}

}  // namespace

Result<Trace> load_trace(const std::string& path, std::uint64_t limit) {
  auto bytes = read_compressed(path);
  if (!bytes.ok()) {
    return std::move(bytes).status();
  }
  auto trace = parse_trace(path, *bytes);
  if (!trace.ok() || limit == 0 || limit >= trace->references.size()) {
    return trace;
  }
  trace->references.resize(limit);
  std::uint32_t blocks = 0;  // Numbered in the order of first mention.
  for (const Reference& reference : trace->references) {
    blocks = std::max(blocks, reference.block + 1);
  }
  trace->blocks = blocks;
  const auto beyond = std::upper_bound(trace->request_ends.begin(), trace->request_ends.end(),
                                       std::uint64_t{limit});
  trace->request_ends.erase(beyond, trace->request_ends.end());
  return trace;
}

int run_offline(const OfflineArguments& arguments) {
  if (const Status can = check_outputs("replay", arguments.json, arguments.plot); !can.ok()) {
    return complain(can);
  }
  const std::size_t rows = arguments.table.policies.size() + 1;
  std::optional<Progress> progress(std::in_place, "replay", arguments.traces.size() * rows, "");
  std::vector<MissRatios> traces;
  for (const std::string& path : arguments.traces) {
    progress->step("read " + path, traces.size() * rows);
    const auto trace = load_trace(path, arguments.limit);
    if (!trace.ok()) {
      progress.reset();
      return complain(trace.status());
    }
    std::size_t done = traces.size() * rows;
    traces.push_back(miss_ratios(*trace, arguments.table, [&](const std::string& policy) {
      progress->step(fmt::format("{}, {}", trace->name, policy), done++);
    }));
  }
  progress.reset();
  if (!arguments.json.empty()) {
    if (Status written = write_json(arguments.json, to_json(traces, arguments)); !written.ok()) {
      return complain(written);
    }
  }
  if (!arguments.plot.empty()) {
    const std::string picture = draw_miss_curves(traces, arguments.table.shares);
    if (Status written = write_picture(arguments.plot, picture); !written.ok()) {
      return complain(written);
    }
  }
  if (arguments.json != "-" && arguments.plot != "-") {
    for (const MissRatios& trace : traces) {
      print_trace(trace, arguments.table.shares);
    }
    print_summary(traces, arguments);
  }
  return kDone;
}

}  // namespace tiermem::cli

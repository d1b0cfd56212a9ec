// Pairs, the search for a peer's best setting, and the report.
#include "bench/harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "bench/machine.hpp"

namespace tiermem::bench {
namespace {

/// Above 1 if `ours` is better.
double ratio_of(Better better, double ours, double peers) {
  return better == Better::higher ? ours / peers : peers / ours;
}

/// The values of one side over all pairs.
struct Side {
  std::vector<double> values, cpu;
  void add(const Sample& sample) {
    values.push_back(sample.value);
    if (sample.cpu_s_per_gib >= 0 && std::isfinite(sample.cpu_s_per_gib)) {
      cpu.push_back(sample.cpu_s_per_gib);
    }
  }
};

Status take(const Measure& measure, Side& side) {
  auto sample = measure();
  if (!sample.ok()) {
    return std::move(sample).status();
  }
  if (!is_figure(sample->value)) {
    return fail(Code::internal, "a measurement gave {}, of which no ratio can be made",
                sample->value);
  }
  side.add(*sample);
  return {};
}

}  // namespace

Status Session::compare(std::string name, std::string unit, Better better, double bar,
                        const Measure& ours, const Peer& peer) {
  Side mine, theirs, unmeasured;
  tell(name);
  Status status = take(ours, unmeasured);
  if (status.ok()) {
    status = take(peer.measure, unmeasured);
  }
  std::vector<double> ratios;
  for (unsigned pair = 0; status.ok() && pair < settings_.pairs; ++pair) {
    tell(fmt::format("{}, pair {} of {}", name, pair + 1, settings_.pairs));
    // The second run finds a warmer machine, so the sides take turns.
    const bool ours_first = pair % 2 == 0;
    status = ours_first ? take(ours, mine) : take(peer.measure, theirs);
    if (status.ok()) {
      status = ours_first ? take(peer.measure, theirs) : take(ours, mine);
    }
    if (status.ok()) {
      ratios.push_back(ratio_of(better, mine.values.back(), theirs.values.back()));
    }
  }
  if (!status.ok()) {
    return status;
  }
  Row row;
  row.name = std::move(name);
  row.unit = std::move(unit);
  row.value = median(mine.values);
  row.peer = peer.name;
  row.peer_command = peer.command;
  row.peer_value = median(theirs.values);
  row.pairs = settings_.pairs;
  row.ratio = median_interval(std::move(ratios));
  row.bar = bar;
  if (!mine.cpu.empty() && !theirs.cpu.empty()) {
    row.extra["cpu_s_per_gib"] = median(mine.cpu);
    row.extra["peer_cpu_s_per_gib"] = median(theirs.cpu);
  }
  add(std::move(row));
  return {};
}

void Session::add(Row row) {
  const bool whole = std::isfinite(row.value) && row.value >= 0 &&
                     (!row.has_peer() || (is_figure(row.ratio.low) && is_figure(row.ratio.high)));
  if (!whole) {
    skip(std::move(row.name), fmt::format("a measurement gave {}", row.value));
    return;
  }
  rows_.push_back(std::move(row));
}

void Session::skip(std::string name, std::string why) {
  skipped_.emplace_back(std::move(name), std::move(why));
}

std::vector<std::string> Session::skipped() const {
  std::vector<std::string> sentences;
  for (const auto& [name, why] : skipped_) {
    sentences.push_back(fmt::format("{} skipped: {}", name, why));
  }
  return sentences;
}

Result<Peer> best_of(Session& session, std::string_view what, Better better, unsigned rounds,
                     std::vector<Peer> candidates, std::string_view unit) {
  std::vector<Side> sides(candidates.size());
  std::vector<std::string> failures(candidates.size());
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (failures[i].empty()) {
        session.tell(fmt::format("{}: best peer: {}", what, candidates[i].name));
        const Status status = take(candidates[i].measure, sides[i]);
        failures[i] = status.ok() ? "" : status.message();
      }
    }
  }
  std::size_t best = candidates.size();
  std::string list;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!failures[i].empty()) {
      list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", candidates[i].name, failures[i]);
      continue;
    }
    const double value = median(sides[i].values);
    list += fmt::format("{}{} {:.4g}", list.empty() ? "" : "; ", candidates[i].name, value);
    if (best == candidates.size() || ratio_of(better, value, median(sides[best].values)) > 1) {
      best = i;
    }
  }
  session.note(fmt::format("{}, peers in {}: {}", what, unit, list));
  if (best == candidates.size()) {
    return fail(Code::unavailable, "{}: no peer could be measured: {:.180}", what, list);
  }
  return std::move(candidates[best]);
}

nlohmann::ordered_json Session::to_json(std::string_view suite) const {
  using Json = nlohmann::ordered_json;
  Json results = Json::array();
  for (const Row& row : rows_) {
    const auto if_peer = [&](Json value) { return row.has_peer() ? value : Json(nullptr); };
    Json entry = {{"name", row.name},
                  {"value", row.value},
                  {"unit", row.unit},
                  {"peer", if_peer(row.peer)},
                  {"peer_value", if_peer(row.peer_value)},
                  {"peer_command", if_peer(row.peer_command)},
                  {"pairs", row.pairs},
                  {"ratio", if_peer(row.ratio.middle)},
                  {"ratio_low", if_peer(row.ratio.low)},
                  {"ratio_high", if_peer(row.ratio.high)}};
    if (row.has_bar()) {
      entry[row.has_peer() ? "bar" : "value_bar"] = row.has_peer() ? row.bar : row.value_bar;
      entry["met"] = row.met();
    }
    if (!row.point.sweep.empty()) {
      entry["sweep"] = row.point.sweep;
      entry["curve"] = row.point.curve;
      entry["at"] = row.point.at;
    }
    for (const auto& [name, value] : row.extra) {
      entry[name] = value;
    }
    results.push_back(std::move(entry));
  }
  for (const auto& [name, why] : skipped_) {
    results.push_back({{"name", name}, {"skipped", why}});
  }
  Json report = {{"suite", suite}, {"machine", describe_machine(settings_.directory)}};
  if (!settings_.device.empty()) {
    report["device"] = settings_.device;
  }
  report["commit"] = describe_commit();
  report["results"] = std::move(results);
  report["notes"] = notes_;
  return report;
}

}  // namespace tiermem::bench

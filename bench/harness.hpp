// How every benchmark measures and reports: interleaved pairs of tiermem and its peer, medians with
// 95 % intervals, one JSON shape for all suites (README.md). Holds no clock of its own: a benchmark
// hands in two functions that each give one sample. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bench/clock.hpp"
#include "bench/statistics.hpp"
#include "tiermem/status.hpp"

namespace tiermem::bench {

enum class Better { higher, lower };

/// One run of one side.
struct Sample {
  double value = 0;           ///< In the row's unit.
  double cpu_s_per_gib = -1;  ///< Processor time of the process; negative: not asked.
};
using Measure = std::function<Result<Sample>()>;

/// What tiermem is compared with.
struct Peer {
  std::string name;
  std::string command;  ///< How to run it by hand, or the settings that say the same.
  Measure measure;
};

/// Of a row that is a point of a curve: which one, and where.
struct Point {
  std::string sweep;  ///< What changes from point to point. Empty: the row is no point.
  std::string curve;  ///< What is measured.
  double at = 0;
};

/// A line of the report. `ratio` > 1 when tiermem is better.
struct Row {
  std::string name;
  std::string unit;
  double value = 0;
  std::string peer;
  std::string peer_command;
  double peer_value = 0;
  unsigned pairs = 0;
  Interval ratio;
  double bar = 0;                       ///< What ratio.low must reach; 0: none.
  double value_bar = 0;                 ///< Where there is no peer: what `value` must not exceed.
  std::map<std::string, double> extra;  ///< More figures, named with their unit.
  Point point;

  bool has_peer() const { return pairs != 0; }
  bool has_bar() const { return bar > 0 || value_bar > 0; }
  bool met() const { return has_peer() ? ratio.low >= bar : value <= value_bar; }
};

struct Settings {
  std::string directory;  ///< For files; on the disk to be measured.
  unsigned pairs = 9;
  std::string device = {};  ///< Of the gpu suite: which device and driver, in words.
  std::uint64_t bytes = 0;  ///< Of the gpu suite: moved at once; 0: by what is free.
};

/// What a run of a suite gathers.
class Session {
 public:
  using Tell = std::function<void(const std::string& what)>;
  /// `tell` is called with what is being measured now.
  Session(Settings settings, Tell tell) : settings_(std::move(settings)), tell_(std::move(tell)) {}

  const Settings& settings() const { return settings_; }
  void tell(const std::string& what) const { tell_(what); }

  /// settings().pairs pairs, each side first in every other one; one unmeasured run of each before.
  /// Adds the row. Errors: those of the two sides.
  Status compare(std::string name, std::string unit, Better better, double bar, const Measure& ours,
                 const Peer& peer);
  /// A figure, with or without a peer. One that cannot be, as a rate that is not finite, is
  /// skipped.
  void add(Row row);
  /// A row that cannot be had on this machine, and why.
  void skip(std::string name, std::string why);
  /// A sentence for people, shown below the table.
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }

  const std::vector<Row>& rows() const { return rows_; }
  /// "name skipped: why", a sentence for each.
  std::vector<std::string> skipped() const;
  const std::vector<std::string>& notes() const { return notes_; }
  nlohmann::ordered_json to_json(std::string_view suite) const;

 private:
  const Settings settings_;
  const Tell tell_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::string>> skipped_;  // Name and reason.
  std::vector<std::string> notes_;
};

/// The candidate with the best median of `rounds` interleaved samples. A candidate that fails is
/// left out; `note` tells what each one reached.
Result<Peer> best_of(Session& session, std::string_view what, Better better, unsigned rounds,
                     std::vector<Peer> candidates, std::string_view unit);

}  // namespace tiermem::bench

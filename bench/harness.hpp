// Measurement and report of every benchmark: interleaved pairs of tiermem and its peer, medians
// with 95 % intervals, one JSON shape for all suites (README.md). It has no clock: a benchmark
// passes two functions that each return one sample. One thread.
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
  double cpu_s_per_gib = -1;  ///< Processor time of the process; negative: not measured.
};
using Measure = std::function<Result<Sample>()>;

/// The other side of a comparison.
struct Peer {
  std::string name;
  std::string command;  ///< The command to run it by hand, or its settings.
  Measure measure;
};

/// The position of a row that is a point of a curve.
struct Point {
  std::string sweep;  ///< The quantity that changes between points. Empty: the row is not a point.
  std::string curve;  ///< The measured quantity.
  double at = 0;
};

/// A line of the report. `ratio` > 1 if tiermem is better.
struct Row {
  std::string name;
  std::string unit;
  double value = 0;
  std::string peer;
  std::string peer_command;
  double peer_value = 0;
  unsigned pairs = 0;
  Interval ratio;
  double bar = 0;                       ///< The minimum of ratio.low; 0: none.
  double value_bar = 0;                 ///< Without a peer: the maximum of `value`.
  std::map<std::string, double> extra;  ///< More figures; their names include the unit.
  Point point;

  bool has_peer() const { return pairs != 0; }
  bool has_bar() const { return bar > 0 || value_bar > 0; }
  bool met() const { return has_peer() ? ratio.low >= bar : value <= value_bar; }
};

struct Settings {
  std::string directory;  ///< Directory for files, on the disk to measure.
  unsigned pairs = 9;
  std::string device = {};  ///< For the gpu suite: a description of device and driver.
  /// For the gpu suite: bytes moved at once; 0: derived from the free memory.
  std::uint64_t bytes = 0;
};

/// The results of a run of a suite.
class Session {
 public:
  using Tell = std::function<void(const std::string& what)>;
  /// `tell` is called with a description of the current measurement.
  Session(Settings settings, Tell tell) : settings_(std::move(settings)), tell_(std::move(tell)) {}

  const Settings& settings() const { return settings_; }
  void tell(const std::string& what) const { tell_(what); }

  /// Measures settings().pairs pairs, with alternating first side, after one unmeasured run of
  /// each. Adds the row. Errors: those of the two sides.
  Status compare(std::string name, std::string unit, Better better, double bar, const Measure& ours,
                 const Peer& peer);
  /// Adds a figure, with or without a peer. An invalid one, such as a rate that is not finite, is
  /// skipped.
  void add(Row row);
  /// Records a row that is not available on this machine, with the reason.
  void skip(std::string name, std::string why);
  /// Adds a sentence that is shown below the table.
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }

  const std::vector<Row>& rows() const { return rows_; }
  /// Returns a sentence "name skipped: why" for each.
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

/// Returns the candidate with the best median of `rounds` interleaved samples. A candidate that
/// fails is skipped; `note` reports what each one reached.
Result<Peer> best_of(Session& session, std::string_view what, Better better, unsigned rounds,
                     std::vector<Peer> candidates, std::string_view unit);

}  // namespace tiermem::bench

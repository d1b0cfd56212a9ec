// The scaling suite: how figures change with one parameter while all others are constant. Each
// sweep has its own file and adds a row for each point of its curves; there are no peers and no
// bars. One thread calls them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/core.hpp"

namespace tiermem::bench {

std::span<const Benchmark> scaling_benchmarks();

Status scaling_extents(Session& session);
Status scaling_depth(Session& session);
Status scaling_buffers(Session& session);
Status scaling_callers(Session& session);
Status scaling_budget(Session& session);
Status scaling_requests(Session& session);

/// Samples per point, interleaved with those of the point's other curves.
inline constexpr unsigned kScalingSamples = 3;
inline constexpr double kScalingSeconds = 0.3;  ///< Per sample.

/// Adds a row: the median of the samples, with the minimum and maximum. `place` describes the
/// point.
void add_point(Session& session, const Point& point, const std::string& place,
               const std::string& unit, const std::vector<double>& samples);

/// A curve of a sweep, and the function that takes a sample at the sweep's current position.
struct Curve {
  const char* name;
  const char* unit;
  std::function<Result<double>()> sample;
};
/// Takes one unmeasured sample of each first. Adds a row for each curve.
Status add_points(Session& session, const char* sweep, double at, const std::string& place,
                  const std::vector<Curve>& curves);

}  // namespace tiermem::bench

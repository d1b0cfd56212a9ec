// The scaling suite: how figures change when one thing does and all else stays. Each sweep has a
// file of its own and adds a row for each point of its curves; there are no peers and no bars. One
// thread calls them.
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

/// Of each point so many, by turns with those of the point's other curves.
inline constexpr unsigned kScalingSamples = 3;
inline constexpr double kScalingSeconds = 0.3;  ///< Of a sample.

/// Adds a row: the median of the samples, with the least and the greatest beside it. `place`: where
/// the point is, in words.
void add_point(Session& session, const Point& point, const std::string& place,
               const std::string& unit, const std::vector<double>& samples);

/// A curve of a sweep, and what gives a sample of it where the sweep is just now.
struct Curve {
  const char* name;
  const char* unit;
  std::function<Result<double>()> sample;
};
/// One of each before is not counted. Adds a row for each curve.
Status add_points(Session& session, const char* sweep, double at, const std::string& place,
                  const std::vector<Curve>& curves);

}  // namespace tiermem::bench

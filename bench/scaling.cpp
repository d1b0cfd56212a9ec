// The list of the scaling suite, and its points.
#include "bench/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tiermem::bench {

std::span<const Benchmark> scaling_benchmarks() {
  static constexpr std::array kBenchmarks = {
      Benchmark{"extents", "extents of 4 KiB to 64 MiB, read and written", scaling_extents},
      Benchmark{"depth", "1 to 256 transfers at once", scaling_depth},
      Benchmark{"buffers", "100 to 10 million buffers: allocate, hit, free", scaling_buffers},
      Benchmark{"callers", "1 to 64 threads: hits, and misses", scaling_callers},
      Benchmark{"budget", "DRAM of 1 to 100 % of what is used", scaling_budget},
      Benchmark{"requests", "0 to 10,000 waiting requests: free", scaling_requests},
  };
  return kBenchmarks;
}

void add_point(Session& session, const Point& point, const std::string& place,
               const std::string& unit, const std::vector<double>& samples) {
  Row row;
  row.name = fmt::format("{}: {}, {}", point.sweep, point.curve, place);
  row.unit = unit;
  row.value = median(samples);
  row.extra["least"] = *std::min_element(samples.begin(), samples.end());
  row.extra["greatest"] = *std::max_element(samples.begin(), samples.end());
  row.point = point;
  session.add(std::move(row));
}

Status add_points(Session& session, const char* sweep, double at, const std::string& place,
                  const std::vector<Curve>& curves) {
  std::vector<std::vector<double>> samples(curves.size());
  for (unsigned round = 0; round <= kScalingSamples; ++round) {
    for (std::size_t i = 0; i < curves.size(); ++i) {
      session.tell(fmt::format("{}: {}, {}", sweep, curves[i].name, place));
      auto sample = curves[i].sample();
      if (!sample.ok()) {
        return std::move(sample).status();
      }
      if (round != 0) {
        samples[i].push_back(*sample);
      }
    }
  }
  for (std::size_t i = 0; i < curves.size(); ++i) {
    add_point(session, {sweep, curves[i].name, at}, place, curves[i].unit, samples[i]);
  }
  return {};
}

}  // namespace tiermem::bench

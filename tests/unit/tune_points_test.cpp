// Choosing depth and piece from measured points, on simulated devices with known limits.
#include "cli/tune_points.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tiermem::cli {
namespace {

constexpr TunePair kUsual = {64, std::uint64_t{2} << 20};

/// A device that takes `fixed` seconds for each request besides its bytes, serves up to `lanes`
/// requests at once, and moves up to `rate` bytes a second in total.
struct Device {
  double fixed, rate;
  unsigned lanes;
  double at(std::uint64_t block, unsigned depth) const {
    const double one = fixed + static_cast<double>(block) / rate;
    return std::min(rate, std::min(depth, lanes) * static_cast<double>(block) / one);
  }
};

std::vector<TunePoint> measured(const Device& device, bool writes = true) {
  std::vector<TunePoint> points;
  for (const bool write : {false, true}) {
    for (const std::uint64_t block : kTuneBlocks) {
      for (const unsigned depth : kTuneDepths) {
        if (block * depth <= std::uint64_t{256} << 20 && (writes || !write)) {
          points.push_back({block,
                            depth,
                            TuneEngine::io_uring,
                            TuneMemory::huge,
                            true,
                            write,
                            device.at(block, depth),
                            {}});
        }
      }
    }
  }
  return points;
}

TEST(TunePoints, the_least_under_way_that_keeps_the_device_busy_is_best) {
  // 100 us and 4 GB/s: 400 KB in flight suffice for large requests, while 4 KiB requests need all
  // 32 lanes.
  const auto points = measured({100e-6, 4e9, 32});
  const TunePair pair = best_pair(points, kUsual);
  EXPECT_EQ(pair.depth, 32U);
  EXPECT_EQ(pair.piece, 65536U);
}

TEST(TunePoints, small_reads_keep_their_speed) {
  // Large requests alone would need a depth of only 1.
  const auto points = measured({20e-6, 1e9, 8});
  const TunePair pair = best_pair(points, kUsual);
  EXPECT_GE(pair.depth, 8U);
}

TEST(TunePoints, a_device_that_is_only_read_is_judged_by_reads) {
  const auto points = measured({100e-6, 4e9, 16}, false);
  EXPECT_EQ(best_pair(points, kUsual).depth, 16U);
}

TEST(TunePoints, without_measurements_nothing_changes) {
  EXPECT_EQ(best_pair({}, kUsual), kUsual);
  EXPECT_EQ(coalescing_gap({}, 64), 0U);
}

TEST(TunePoints, a_challenger_must_be_faster_by_turns) {
  EXPECT_TRUE(challenger_wins({{{1, 1, 1}, {1.1, 1.1, 1.1}}, {{1, 1, 1}, {1, 1, 1}}}));
  EXPECT_FALSE(challenger_wins({{{1, 1, 1}, {1.02, 1.02, 1.02}}, {{1, 1, 1}, {1.01, 1, 1}}}))
      << "too little";
  EXPECT_FALSE(challenger_wins({{{1, 1, 1}, {2, 2, 2}}, {{1, 1, 1}, {0.9, 0.9, 0.9}}}))
      << "slower at writing";
  EXPECT_FALSE(challenger_wins({{{1, 1, 1}, {9, 0.9, 0.9}}, {{1, 1, 1}, {1, 1, 1}}}))
      << "one round only";
  EXPECT_FALSE(challenger_wins({{{1, 1, 1}, {1.5, 1.5, 0.9}}, {{1, 1, 1}, {1, 1, 1}}}))
      << "not in every round";
  EXPECT_TRUE(challenger_wins({{{1, 1, 1}, {1.1, 1.1, 1.1}}, {}})) << "a raw device";
  EXPECT_FALSE(challenger_wins({}));
}

TEST(TunePoints, the_gap_is_what_a_request_costs_besides_its_bytes) {
  // 40 us each, one at a time: 4 KiB take 41.4 us, and 160 KB move in 40 us.
  const Device device{40e-6, 4e9, 1};
  const auto points = measured(device);
  const double best = points.back().rate;  // 64 MiB, nearly 4 GB/s.
  EXPECT_NEAR(static_cast<double>(coalescing_gap(points, 1)), 40e-6 * best, 0.02 * 40e-6 * best);
  // 16 requests at once share the cost, so one more request is cheaper.
  EXPECT_LT(coalescing_gap(measured({40e-6, 4e9, 16}), 64), coalescing_gap(points, 1) / 8);
}

}  // namespace
}  // namespace tiermem::cli

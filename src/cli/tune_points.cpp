// Chooses from the points; see tune_points.hpp.
#include "cli/tune_points.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace tiermem::cli {
namespace {

constexpr double kAsGood = 0.97;
constexpr double kBetter = 1.03;
constexpr std::uint64_t kSmallest = 4096;
// Below this, most of a request's time is its fixed cost.
constexpr std::uint64_t kLeastPiece = 65536;
constexpr std::uint64_t kMostPiece = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostGap = std::uint64_t{1} << 30;

double rate_of(std::span<const TunePoint> points, TuneEngine engine, bool write,
               std::uint64_t block, unsigned depth) {
  const TunePoint* point = find_point(points, engine, write, block, depth);
  return point != nullptr ? point->rate : 0;
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

const char* engine_name(TuneEngine engine) {
  return engine == TuneEngine::io_uring ? "io_uring" : "threads";
}

const char* memory_name(TuneMemory memory) {
  return memory == TuneMemory::huge    ? "huge pages"
         : memory == TuneMemory::small ? "4 KiB pages"
                                       : "registered";
}

const TunePoint* find_point(std::span<const TunePoint> points, TuneEngine engine, bool write,
                            std::uint64_t block, unsigned depth) {
  const auto found = std::find_if(points.begin(), points.end(), [&](const TunePoint& point) {
    return point.engine == engine && point.write == write && point.block == block &&
           point.depth == depth && point.direct && point.memory == TuneMemory::huge;
  });
  return found == points.end() || found->rate <= 0 ? nullptr : &*found;
}

TuneEngine engine_of(std::span<const TunePoint> points) {
  const bool ring = std::any_of(points.begin(), points.end(), [](const TunePoint& point) {
    return point.engine == TuneEngine::io_uring && point.rate > 0;
  });
  return ring ? TuneEngine::io_uring : TuneEngine::threads;
}

TunePair best_pair(std::span<const TunePoint> points, const TunePair& fallback) {
  const TuneEngine engine = engine_of(points);
  double best[2] = {0, 0};
  double best_small = 0;
  for (const unsigned depth : kTuneDepths) {
    for (const std::uint64_t block : kTuneBlocks) {
      for (const bool write : {false, true}) {
        best[write] = std::max(best[write], rate_of(points, engine, write, block, depth));
      }
    }
    best_small = std::max(best_small, rate_of(points, engine, false, kSmallest, depth));
  }
  // The geometric mean: little gain in one direction does not make up for half the speed of the
  // other.
  const auto score = [&](std::uint64_t block, unsigned depth) {
    const double read = rate_of(points, engine, false, block, depth);
    const double write = rate_of(points, engine, true, block, depth);
    if (read <= 0 || (best[1] > 0 && write <= 0) ||
        rate_of(points, engine, false, kSmallest, depth) < kAsGood * best_small) {
      return 0.0;
    }
    return best[1] > 0 ? std::sqrt(read / best[0] * (write / best[1])) : read / best[0];
  };
  double highest = 0;
  for (const std::uint64_t block : kTuneBlocks) {
    for (const unsigned depth : kTuneDepths) {
      highest = std::max(highest, block >= kLeastPiece ? score(block, depth) : 0);
    }
  }
  TunePair pair = fallback;
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::uint64_t block : kTuneBlocks) {
    for (const unsigned depth : kTuneDepths) {
      const bool good = block >= kLeastPiece && block <= kMostPiece && highest > 0 &&
                        score(block, depth) >= kAsGood * highest;
      if (good && block * depth < least) {
        least = block * depth;
        pair = {depth, block};
      }
    }
  }
  return pair;
}

bool challenger_wins(const TuneDuel& duel) {
  bool better = false;
  for (const auto* rates : {duel.read, duel.write}) {
    if (rates[0].empty() && rates[1].empty()) {
      continue;  // A raw device is not written.
    }
    const double incumbent = median(rates[0]);
    const double challenger = median(rates[1]);
    if (challenger < incumbent) {
      return false;
    }
    const bool always = std::equal(rates[1].begin(), rates[1].end(), rates[0].begin(),
                                   rates[0].end(), std::greater<>());
    better = better || (always && challenger >= kBetter * incumbent);
  }
  return better;
}

std::uint64_t coalescing_gap(std::span<const TunePoint> points, unsigned depth) {
  const TuneEngine engine = engine_of(points);
  const double small = rate_of(points, engine, false, kSmallest, depth);
  double best = 0;
  for (const std::uint64_t block : kTuneBlocks) {
    best = std::max(best, rate_of(points, engine, false, block, depth));
  }
  if (small <= 0 || best <= small) {
    return 0;
  }
  // The time per request while the device is kept at its depth, not from the request's start to its
  // end.
  const double took = kSmallest / small;
  const double fixed = took - kSmallest / best;
  return std::min(static_cast<std::uint64_t>(fixed * best), kMostGap);
}

}  // namespace tiermem::cli

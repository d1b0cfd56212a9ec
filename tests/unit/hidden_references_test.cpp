// The order of extents with hidden references, as in mapped memory: only misses teach it.
// Beside LRU, which sees all references. docs/decisions/terms.md has the figures of larger runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "policy/replay.hpp"
#include "policy/rivals/rival.hpp"
#include "recorded_traces.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

using References = std::vector<Reference>;

struct Misses {
  double hidden = 0, lru = 0;  ///< Per reference, in the second half.
};

Misses misses_of(const References& references, std::uint32_t blocks, std::uint32_t capacity) {
  const std::span<const Reference> all = references, first = all.first(all.size() / 2);
  const auto count = [&](const std::function<std::uint64_t(std::span<const Reference>)>& hits) {
    const std::uint64_t seen = all.size() - first.size();
    return static_cast<double>(seen - (hits(all) - hits(first))) / static_cast<double>(seen);
  };
  const auto replay = [&](std::span<const Reference> some) {
    return replay_recency(some, blocks, {.capacity = capacity, .hidden = true}).hits;
  };
  const auto lru = [&](std::span<const Reference> some) {
    return rival_hits(*find_rival("lru"), some, blocks, capacity);
  };
  return {count(replay), count(lru)};
}

References make(std::uint32_t n, const std::function<std::uint32_t(std::uint32_t)>& block) {
  References references;
  for (std::uint32_t i = 0; i < n; ++i) {
    references.push_back({block(i), false});
  }
  return references;
}

/// Blocks by Zipf's law, with an exponent of 0.99, in no order.
class Zipf {
 public:
  explicit Zipf(std::uint32_t blocks) : blocks_(blocks) {
    double sum = 0;
    for (std::uint32_t rank = 1; rank <= blocks; ++rank) {
      sums_.push_back(sum += std::pow(rank, -0.99));
    }
  }
  std::uint32_t operator()(std::mt19937& random, std::uint32_t shift = 0) const {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random);
    const auto rank = static_cast<std::uint32_t>(std::lower_bound(sums_.begin(), sums_.end(), at) -
                                                 sums_.begin());
    return static_cast<std::uint32_t>((std::uint64_t{rank} * 2654435761U + shift) % blocks_);
  }

 private:
  std::uint32_t blocks_;
  std::vector<double> sums_;
};

constexpr std::uint32_t kBlocks = 8192, kCapacity = 4096, kTouches = 600'000;

TEST(HiddenReferences, frequent_blocks_stay_as_with_an_order_that_sees_all) {
  const Zipf zipf(kBlocks);
  for (const std::uint32_t capacity : {kCapacity, kCapacity / 2}) {
    std::mt19937 random(1);
    const auto references = make(kTouches, [&](std::uint32_t) { return zipf(random); });
    const Misses misses = misses_of(references, kBlocks, capacity);
    std::printf("zipf, %u of %u: hidden %.4f  LRU %.4f\n", capacity, kBlocks, misses.hidden,
                misses.lru);
    EXPECT_LE(misses.hidden, 1.03 * misses.lru);
  }
}

TEST(HiddenReferences, a_hot_set_that_moves_is_followed) {
  const Zipf zipf(kBlocks);
  std::mt19937 random(2);
  const auto references = make(kTouches, [&](std::uint32_t i) {
    return zipf(random, i / (10 * kCapacity) * (kBlocks / 7 | 1));
  });
  const Misses misses = misses_of(references, kBlocks, kCapacity);
  std::printf("moving zipf: hidden %.4f  LRU %.4f\n", misses.hidden, misses.lru);
  EXPECT_LE(misses.hidden, 1.15 * misses.lru);
}

// Half of the memory is hot; three times as much as the hot blocks is cold.
TEST(HiddenReferences, hot_blocks_stay_beside_cold_ones) {
  for (const auto& [hot, touches] : {std::pair(24U, 200'000U), std::pair(2048U, kTouches)}) {
    std::mt19937 random(3);
    const auto references = make(touches, [&, hot = hot](std::uint32_t) {
      return random() % 10 != 0 ? random() % hot : hot + random() % (3 * hot);
    });
    const Misses misses = misses_of(references, 4 * hot, 2 * hot);
    std::printf("%u hot: hidden %.4f  LRU %.4f\n", hot, misses.hidden, misses.lru);
    EXPECT_LE(misses.hidden, 1.35 * misses.lru);
  }
}

TEST(HiddenReferences, hot_blocks_stay_beside_a_scan) {
  std::mt19937 random(4);
  std::uint32_t next = 0;
  const auto references = make(kTouches, [&](std::uint32_t) {
    return random() % 10 != 0 ? random() % 2048 : 2048 + next++ % 6144;
  });
  const Misses misses = misses_of(references, kBlocks, kCapacity);
  std::printf("scan: hidden %.4f  LRU %.4f\n", misses.hidden, misses.lru);
  EXPECT_LE(misses.hidden, 1.0 * misses.lru);
}

// All blocks of a loop return, and none must drive out the part that stays.
TEST(HiddenReferences, a_part_of_a_loop_stays) {
  struct Row {
    double times;  ///< The loop's length, in memories.
    double most;   ///< Misses.
  };
  for (const auto& [times, most] : {Row{1.1, 0.25}, {1.3, 0.55}, {2, 0.70}, {4, 0.85}}) {
    const auto length = static_cast<std::uint32_t>(times * kCapacity);
    const auto references = make(kTouches, [&](std::uint32_t i) { return i % length; });
    const Misses misses = misses_of(references, length, kCapacity);
    std::printf("loop of %.1f memories: hidden %.4f\n", times, misses.hidden);
    EXPECT_LE(misses.hidden, most) << times;
  }
}

TEST(HiddenReferences, recorded_traces_miss_little_more_than_with_lru) {
  if (test::kThreadSanitizer) {
    GTEST_SKIP() << "replay is of one thread: the thread sanitizer has nothing to see";
  }
  struct File {
    const char* path;
    unsigned repeat;
  };
  for (const File& file : {File{"cache/lirs-2_pools.trace.gz", 1},
                           {"cache/lirs-loop.trace.gz", 1},
                           {"cache/lirs-multi1.trace.gz", 1},
                           {"cache/lirs-scan.trace.gz", 1},
                           {"cache/lirs-sprite.trace.gz", 1},
                           {"cache/arc-OLTP.lis.zst", 1},
                           {"kv/mooncake-conversation.jsonl.gz", 1},
                           {"tensor/g10-bert-256.ttrace.gz", 4},
                           {"tensor/g10-vit-512.ttrace.gz", 4}}) {
    LOAD_OR_SKIP(trace, file.path);
    References references;
    for (unsigned i = 0; i < file.repeat; ++i) {
      references.insert(references.end(), trace.references.begin(), trace.references.end());
    }
    for (const unsigned percent : {5U, 10U, 20U, 50U}) {
      const std::uint32_t capacity = trace.blocks * percent / 100;
      const auto total = static_cast<double>(references.size());
      const double hidden =
          replay_recency(references, trace.blocks, {.capacity = capacity, .hidden = true})
              .hit_ratio();
      const double lru =
          static_cast<double>(rival_hits(*find_rival("lru"), references, trace.blocks, capacity)) /
          total;
      EXPECT_GE(hidden, lru - 0.045) << file.path << " at " << percent << " %";
    }
  }
}

}  // namespace
}  // namespace tiermem

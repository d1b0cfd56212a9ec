// Hit ratios by replay: MIN against brute force, Recency against MIN, LRU and published figures.
// rivals_test.cpp has the other policies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "policy/replay.hpp"
#include "policy/rivals/min.hpp"
#include "policy/rivals/rival.hpp"
#include "policy/trace.hpp"
#include "recorded_traces.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

constexpr const char* kOneThread =
    "replay is of one thread: the thread sanitizer has nothing to see";

std::uint64_t lru_hits(const std::vector<Reference>& references, std::uint32_t blocks,
                       std::uint32_t capacity) {
  return rival_hits(*find_rival("lru"), references, blocks, capacity);
}

/// The maximum by which a trace may fall below LRU. The worst rows are the Mooncake conversation
/// and the tensor traces at 20 %, where blocks are reused just beyond the reach of the memory.
constexpr double kMargin = 0.03;

std::vector<Reference> loop(std::uint32_t blocks, unsigned rounds) {
  std::vector<Reference> references;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::uint32_t block = 0; block < blocks; ++block) {
      references.push_back({block, false});
    }
  }
  return references;
}

/// Returns the maximum number of hits over all choices of victims, by trying all sets of resident
/// blocks.
std::uint64_t most_hits(const std::vector<Reference>& references, std::uint32_t capacity) {
  std::map<std::uint32_t, std::uint64_t> best = {{0, 0}};  // Resident set as bits -> most hits.
  for (const Reference& reference : references) {
    const std::uint32_t bit = 1u << reference.block;
    std::map<std::uint32_t, std::uint64_t> next;
    for (const auto& [set, hits] : best) {
      const auto reach = [&](std::uint32_t to, std::uint64_t with) {
        next[to] = std::max(next[to], with);
      };
      if ((set & bit) != 0) {
        reach(set, hits + 1);
      } else if (static_cast<unsigned>(__builtin_popcount(set)) < capacity) {
        reach(set | bit, hits);
      } else {
        for (std::uint32_t rest = set; rest != 0; rest &= rest - 1) {
          reach((set & ~(rest & -rest)) | bit, hits);
        }
      }
    }
    best = std::move(next);
  }
  std::uint64_t most = 0;
  for (const auto& [set, hits] : best) {
    most = std::max(most, hits);
  }
  return most;
}

TEST(PolicyReference, min_is_what_the_best_choice_of_victims_reaches) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<Reference> references(30);
    for (Reference& reference : references) {
      reference.block = random() % 7;
    }
    const std::uint32_t capacity = 1 + random() % 5;
    EXPECT_EQ(min_hits(references, 7, capacity), most_hits(references, capacity))
        << "seed " << seed << ", capacity " << capacity;
  }
}

TEST(PolicyReference, a_loop_larger_than_the_memory_stays_in_it_in_part) {
  for (const std::uint32_t capacity : {50u, 100u, 300u, 500u, 700u, 900u, 950u}) {
    const auto references = loop(1000, 40);
    EXPECT_EQ(lru_hits(references, 1000, capacity), 0u);
    const double most = static_cast<double>(min_hits(references, 1000, capacity)) / (40.0 * 1000);
    const double ours = replay_recency(references, 1000, {.capacity = capacity}).hit_ratio();
    EXPECT_GE(ours, 0.75 * most) << "capacity " << capacity;
    EXPECT_LE(ours, most) << "capacity " << capacity;
  }
}

TEST(PolicyReference,
     the_second_pass_of_a_loop_moves_less_than_the_first_and_the_third_still_less) {
  const auto once = loop(1000, 1);
  const auto second = replay_recency(once, 1000, {.capacity = 600, .repeat = 2}).last_hits;
  const auto third = replay_recency(once, 1000, {.capacity = 600, .repeat = 3}).last_hits;
  const auto tenth = replay_recency(once, 1000, {.capacity = 600, .repeat = 10}).last_hits;
  EXPECT_GE(second, 150u);
  EXPECT_GT(third, second);
  EXPECT_GE(tenth, 500u);
}

TEST(PolicyReference, many_touches_of_a_block_count_as_one_use) {
  // Views are smaller than extents, so a scan touches each extent many times.
  const auto references = loop(1000, 20);
  const double one = replay_recency(references, 1000, {.capacity = 300}).hit_ratio();
  const double many =
      replay_recency(references, 1000, {.capacity = 300, .touches = 32}).hit_ratio();
  EXPECT_NEAR(one, many, 0.01);
}

TEST(PolicyReference, a_scan_does_not_drive_out_what_is_in_use) {
  // A hot set of 80 in a memory of 100, then a scan of 5000 that also uses the hot set.
  std::vector<Reference> references;
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t block = 0; block < 80; ++block) {
      references.push_back({block, false});
    }
  }
  std::uint32_t hot = 0;
  std::uint64_t hot_uses = references.size();
  for (std::uint32_t block = 80; block < 5080; ++block) {
    references.push_back({block, false});
    if (block % 4 == 0) {
      references.push_back({hot++ % 80, false});
      ++hot_uses;
    }
  }
  const auto ours = replay_recency(references, 5080, {.capacity = 100});
  const std::uint64_t lru = lru_hits(references, 5080, 100);
  EXPECT_GE(static_cast<double>(ours.hits), 0.9 * static_cast<double>(hot_uses - 80));
  EXPECT_GT(ours.hits, lru + 900);
}

double hit_ratio_of(const char* rival, const std::vector<Reference>& references,
                    std::uint32_t blocks, std::uint32_t capacity) {
  return static_cast<double>(rival_hits(*find_rival(rival), references, blocks, capacity)) /
         static_cast<double>(references.size());
}

TEST(PolicyReference, it_follows_a_hot_set_that_drifts) {
  // Zipf's law over 2000 blocks. Every 20 references the ranks move by one block, so all hot blocks
  // are cold within 40,000 references. Early references must not count for long.
  std::mt19937 random(7);
  std::vector<double> weight(2000);
  for (std::size_t rank = 0; rank < weight.size(); ++rank) {
    weight[rank] = 1 / static_cast<double>(rank + 1);
  }
  std::discrete_distribution<std::uint32_t> zipf(weight.begin(), weight.end());
  std::vector<Reference> references;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    references.push_back({(zipf(random) * 7 + i / 20) % 2000, false});
  }
  for (const std::uint32_t capacity : {100u, 200u, 400u, 1000u}) {
    const double ours = replay_recency(references, 2000, {.capacity = capacity}).hit_ratio();
    const double lru = hit_ratio_of("lru", references, 2000, capacity);
    const double arc = hit_ratio_of("arc", references, 2000, capacity);
    std::printf("drifting zipf, %4u blocks: LRU %.4f  ARC %.4f  Recency %.4f\n", capacity, lru, arc,
                ours);
    EXPECT_GE(ours, lru - 0.01) << capacity;
    EXPECT_GE(ours, arc - 0.04) << capacity;
  }
}

TEST(PolicyReference, tensors_that_are_used_thrice_and_die_are_worth_a_word) {
  // Steps of a training program with 60 layers. Each layer has two extents of weights, used forward
  // and backward, and three of activations, which are written, read at once, and read on the way
  // back. Activations are new in each step and dead after it. The policy cannot see this: main
  // fills with dead extents, and LRU hits more, because they leave it in order. With hints from the
  // program the policy gets nearly all possible hits.
  std::vector<Reference> references;
  std::vector<ReplayHint> hints;
  std::uint32_t next = 120;
  const auto use = [&](std::uint32_t block, bool writes) { references.push_back({block, writes}); };
  for (int step = 0; step < 20; ++step, next += 180) {
    for (std::uint32_t turn = 0; turn < 120; ++turn) {
      const bool forward = turn < 60;
      const std::uint32_t layer = forward ? turn : 119 - turn;
      use(2 * layer, false);
      use(2 * layer + 1, false);
      for (std::uint32_t block = next + 3 * layer; block < next + 3 * layer + 3; ++block) {
        use(block, forward);
        if (forward) {
          use(block, false);
        } else {
          hints.push_back({references.size(), block, Advice::dont_need});
        }
      }
    }
  }
  for (const std::uint32_t capacity : {60u, 90u, 150u, 240u}) {
    const double unseen = replay_recency(references, next, {.capacity = capacity}).hit_ratio();
    const double told =
        replay_recency(references, next, {.capacity = capacity, .hints = hints}).hit_ratio();
    const double lru = hit_ratio_of("lru", references, next, capacity);
    const double arc = hit_ratio_of("arc", references, next, capacity);
    const double min = static_cast<double>(min_hits(references, next, capacity)) /
                       static_cast<double>(references.size());
    std::printf("tensors, %3u blocks: LRU %.4f  ARC %.4f  Recency %.4f  told %.4f  MIN %.4f\n",
                capacity, lru, arc, unseen, told, min);
    EXPECT_GE(unseen, lru - 0.12) << capacity;
    EXPECT_GE(told, unseen) << capacity;
    EXPECT_LE(told, min) << capacity;
    if (capacity > 120) {
      EXPECT_GE(told, min - 0.05) << capacity;
    }
  }
}

/// The figure policy_gap, for those of its traces that replay quickly.
TEST(PolicyReference, its_mean_distance_from_MIN_is_less_than_that_of_ARC) {
  if (test::kThreadSanitizer) {
    GTEST_SKIP() << kOneThread;
  }
  struct File {
    const char* path;
    unsigned repeat;
  };
  double ours = 0, arc = 0;
  for (const File& file : {File{"cache/lirs-loop.trace.gz", 1},
                           {"cache/lirs-2_pools.trace.gz", 1},
                           {"cache/lirs-sprite.trace.gz", 1},
                           {"kv/mooncake-conversation.jsonl.gz", 1},
                           {"tensor/g10-bert-256.ttrace.gz", 2}}) {
    LOAD_OR_SKIP(trace, file.path);
    std::vector<Reference> references;
    for (unsigned i = 0; i < file.repeat; ++i) {
      references.insert(references.end(), trace.references.begin(), trace.references.end());
    }
    for (const unsigned percent : {5u, 10u, 20u, 50u}) {
      const std::uint32_t capacity = trace.blocks * percent / 100;
      const double min = static_cast<double>(min_hits(references, trace.blocks, capacity)) /
                         static_cast<double>(references.size());
      ours += min - replay_recency(references, trace.blocks, {.capacity = capacity}).hit_ratio();
      arc += min - hit_ratio_of("arc", references, trace.blocks, capacity);
    }
  }
  std::printf("mean distance from MIN: Recency %.4f  ARC %.4f\n", ours / 20, arc / 20);
  EXPECT_GE(arc / ours, 1.05);
}

TEST(PolicyReference, recency_hits_more_of_OLTP_than_the_published_ARC) {
  if (test::kThreadSanitizer) {
    GTEST_SKIP() << kOneThread;
  }
  LOAD_OR_SKIP(trace, "cache/arc-OLTP.lis.zst");
  struct Row {
    std::uint32_t pages;
    double arc, s3_fifo, min;  // Per cent; ARC from its paper.
  };
  const Row rows[] = {{1000, 38.93, 40.80, 53.61},
                      {2000, 46.08, 46.96, 60.40},
                      {5000, 55.25, 55.86, 68.27},
                      {10000, 61.87, 62.59, 73.02},
                      {15000, 65.40, 65.97, 75.14}};
  for (const Row& row : rows) {
    const ReplayOptions options{.capacity = row.pages};
    const double ours = 100 * replay_recency(trace.references, trace.blocks, options).hit_ratio();
    const double min = 100 *
                       static_cast<double>(min_hits(trace.references, trace.blocks, row.pages)) /
                       static_cast<double>(trace.references.size());
    std::printf("OLTP %5u pages: ARC %.2f  S3-FIFO %.2f  Recency %.2f  MIN %.2f\n", row.pages,
                row.arc, row.s3_fifo, ours, min);
    EXPECT_NEAR(min, row.min, 0.005001);
    EXPECT_GT(ours, row.arc) << row.pages;
    EXPECT_GT(ours, row.s3_fifo - 1.5) << row.pages;
  }
}

struct Recorded {
  const char* file;
  unsigned repeat;  ///< Rounds of the sequence; a tensor trace is one step of a program.
  /// The least lead over LRU in hit ratio, at 5, 10 and 20 % of the footprint.
  double least_over_lru;
};

void PrintTo(const Recorded& recorded, std::ostream* out) {
  *out << recorded.file;
}

/// Turns "cache/lirs-loop.trace.gz" into "lirs_loop".
std::string case_name(const testing::TestParamInfo<Recorded>& info) {
  std::string name = std::filesystem::path(info.param.file).filename();
  name = name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class RecordedTrace : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedTrace, recency_is_near_or_above_LRU_and_never_above_MIN) {
  if (test::kThreadSanitizer) {
    GTEST_SKIP() << kOneThread;
  }
  LOAD_OR_SKIP(trace, GetParam().file);
  std::vector<Reference> references;
  for (unsigned i = 0; i < GetParam().repeat; ++i) {
    references.insert(references.end(), trace.references.begin(), trace.references.end());
  }
  const auto total = static_cast<double>(references.size());
  for (const unsigned percent : {5u, 10u, 20u, 50u, 90u}) {
    const std::uint32_t capacity = std::max(1u, trace.blocks * percent / 100);
    const ReplayOptions one{.capacity = capacity};
    const ReplayOptions batch{.capacity = capacity, .batch = std::max(1u, capacity / 50)};
    const double lru = static_cast<double>(lru_hits(references, trace.blocks, capacity)) / total;
    const double ours = replay_recency(references, trace.blocks, one).hit_ratio();
    const double batched = replay_recency(references, trace.blocks, batch).hit_ratio();
    const double min = static_cast<double>(min_hits(references, trace.blocks, capacity)) / total;
    std::printf("%-22s %2u %% %7u blocks: LRU %.4f  Recency %.4f  in batches %.4f  MIN %.4f\n",
                trace.name.c_str(), percent, capacity, lru, ours, batched, min);
    EXPECT_GE(ours, lru - kMargin);
    EXPECT_GE(batched, lru - kMargin - 0.01);
    EXPECT_LE(ours, min);
    EXPECT_LE(lru, min);
    if (trace.name == "lirs-loop" && percent <= 50) {
      EXPECT_GE(ours, min - 0.05) << percent << " %";
    }
    if (percent <= 20) {
      EXPECT_GE(ours - lru, GetParam().least_over_lru) << percent << " %";
    }
    if (percent == 50 && GetParam().least_over_lru >= 0.03) {
      EXPECT_GT(ours, lru);  // For loops and scans LRU has no hits, and Recency has some.
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, RecordedTrace,
                         testing::Values(Recorded{"cache/lirs-loop.trace.gz", 1, 0.04},
                                         Recorded{"cache/lirs-scan.trace.gz", 1, 0.035},
                                         Recorded{"cache/lirs-multi1.trace.gz", 1, 0.03},
                                         Recorded{"cache/lirs-2_pools.trace.gz", 1, -0.005},
                                         Recorded{"cache/lirs-sprite.trace.gz", 1, -0.01},
                                         Recorded{"cache/arc-OLTP.lis.zst", 1, 0.01},
                                         Recorded{"kv/mooncake-conversation.jsonl.gz", 1, -kMargin},
                                         Recorded{"tensor/g10-bert-256.ttrace.gz", 2, -kMargin},
                                         Recorded{"tensor/g10-vit-1280.ttrace.gz", 2, -kMargin}),
                         case_name);

}  // namespace
}  // namespace tiermem

// The policies that Recency is compared with. They are tested against obviously correct models
// where such models exist, against published figures, and against properties that all policies
// share. A wrong rival would make every comparison worthless.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "policy/rivals/min.hpp"
#include "policy/rivals/rival.hpp"
#include "recorded_traces.hpp"

namespace tiermem {
namespace {

using Access = std::function<bool(std::uint32_t block)>;

std::vector<Reference> random_references(unsigned seed, std::uint32_t blocks, std::size_t n) {
  std::mt19937 random(seed);
  std::vector<Reference> references(n);
  for (Reference& reference : references) {  // Lower numbers are more frequent.
    reference.block = static_cast<std::uint32_t>(std::min(random() % blocks, random() % blocks));
  }
  return references;
}

/// Expects the same answers as the model's, at every reference.
void expect_same(const char* name, const std::function<Access(std::uint32_t capacity)>& model) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const std::uint32_t capacity = 1 + seed % 14;
    const std::unique_ptr<Rival> rival = find_rival(name)->make(30, capacity);
    const Access expected = model(capacity);
    std::size_t number = 0;
    for (const Reference& reference : random_references(seed, 30, 600)) {
      ASSERT_EQ(rival->access(reference.block), expected(reference.block))
          << name << ", seed " << seed << ", capacity " << capacity << ", reference " << number;
      ++number;
    }
  }
}

struct Entry {
  std::uint32_t block;
  unsigned heat = 0;
};
using Queue = std::deque<Entry>;

Queue::iterator find(Queue& queue, std::uint32_t block) {
  return std::find_if(queue.begin(), queue.end(),
                      [&](const Entry& entry) { return entry.block == block; });
}
bool take(Queue& queue, std::uint32_t block) {
  const auto at = find(queue, block);
  if (at == queue.end()) {
    return false;
  }
  queue.erase(at);
  return true;
}

TEST(Rivals, lru_keeps_the_blocks_used_last) {
  expect_same("lru", [](std::uint32_t capacity) -> Access {
    return [capacity, order = Queue()](std::uint32_t block) mutable {
      const bool hit = take(order, block);
      order.push_front({block});
      order.resize(std::min<std::size_t>(order.size(), capacity));
      return hit;
    };
  });
}

/// A clock is a FIFO in which a block with heat left goes round again, one degree cooler.
Access clock_model(std::uint32_t capacity, unsigned hottest) {
  return [=, queue = Queue()](std::uint32_t block) mutable {
    if (const auto at = find(queue, block); at != queue.end()) {
      at->heat = std::min(at->heat + 1, hottest);
      return true;
    }
    while (queue.size() == capacity) {
      const Entry oldest = queue.back();
      queue.pop_back();
      if (oldest.heat > 0) {
        queue.push_front({oldest.block, oldest.heat - 1});
      }
    }
    queue.push_front({block});
    return false;
  };
}

TEST(Rivals, a_clock_gives_another_round_for_each_degree_of_heat) {
  expect_same("clock", [](std::uint32_t capacity) { return clock_model(capacity, 1); });
  expect_same("gclock", [](std::uint32_t capacity) { return clock_model(capacity, 3); });
}

TEST(Rivals, two_q_needs_a_return_from_the_remembered_ones) {
  expect_same("2q", [](std::uint32_t capacity) -> Access {
    return [capacity, in = Queue(), out = Queue(), main = Queue()](std::uint32_t block) mutable {
      if (take(main, block)) {
        main.push_front({block});
        return true;
      }
      if (find(in, block) != in.end()) {
        return true;
      }
      const bool known = find(out, block) != out.end();
      if (in.size() + main.size() == capacity) {
        if (in.size() > std::max(capacity / 4, 1u) || main.empty()) {
          out.push_front(in.back());
          in.pop_back();
          out.resize(std::min<std::size_t>(out.size(), std::max(capacity / 2, 1u)));
        } else {
          main.pop_back();
        }
      }
      take(out, block);
      (known ? main : in).push_front({block});
      return false;
    };
  });
}

TEST(Rivals, sieve_moves_its_hand_and_no_block) {
  expect_same("sieve", [](std::uint32_t capacity) -> Access {
    // `hand` is the position from the oldest, counted from 0. Evictions close the gap below it.
    return [capacity, queue = std::vector<Entry>(),
            hand = std::size_t{0}](std::uint32_t block) mutable {
      for (Entry& entry : queue) {
        if (entry.block == block) {
          entry.heat = 1;
          return true;
        }
      }
      if (queue.size() == capacity) {
        hand = hand < queue.size() ? hand : 0;
        while (queue[hand].heat > 0) {
          queue[hand].heat = 0;
          hand = hand + 1 < queue.size() ? hand + 1 : 0;
        }
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(hand));
        // Beyond the newest block the hand starts again at the oldest.
        hand = hand < queue.size() ? hand : 0;
      }
      queue.push_back({block});
      return false;
    };
  });
}

TEST(Rivals, none_hits_more_than_MIN_and_all_keep_what_fits) {
  for (const RivalKind& kind : rival_kinds()) {
    SCOPED_TRACE(kind.name);
    for (unsigned seed = 1; seed <= 30; ++seed) {
      const std::uint32_t capacity = 1 + seed;
      const auto references = random_references(seed, 60, 2000);
      EXPECT_LE(rival_hits(kind, references, 60, capacity), min_hits(references, 60, capacity))
          << "seed " << seed;
      EXPECT_EQ(rival_hits(kind, references, 60, 60), min_hits(references, 60, 60));
    }
  }
}

TEST(Rivals, only_those_that_rank_by_distance_or_fame_keep_a_part_of_a_loop) {
  std::vector<Reference> loop;
  for (std::uint32_t i = 0; i < 40000; ++i) {
    loop.push_back({i % 1000, false});
  }
  for (const RivalKind& kind : rival_kinds()) {
    const std::string name = kind.name;
    const auto hits = rival_hits(kind, loop, 1000, 500);
    if (name == "lirs" || name == "w-tinylfu") {
      EXPECT_GE(hits, min_hits(loop, 1000, 500) * 9 / 10) << name;
    } else {
      EXPECT_EQ(hits, 0u) << name;
    }
  }
}

TEST(Rivals, one_scan_does_not_drive_out_the_hot_set_of_those_that_resist_scans) {
  std::vector<Reference> references;
  const auto hot = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (std::uint32_t block = 0; block < 50; ++block) {
        references.push_back({block, false});
        references.push_back({50 + static_cast<std::uint32_t>(references.size()), false});
      }
    }
  };
  hot(40);
  const std::size_t before = references.size();
  for (std::uint32_t i = 0; i < 1000; ++i) {
    references.push_back({50 + static_cast<std::uint32_t>(references.size()), false});
  }
  hot(1);
  const auto blocks = static_cast<std::uint32_t>(50 + references.size());
  const std::span<const Reference> all = references, first = all.first(before + 1000);
  for (const char* name : {"2q", "arc", "lirs", "s3-fifo", "w-tinylfu"}) {
    const RivalKind& kind = *find_rival(name);
    EXPECT_GE(rival_hits(kind, all, blocks, 160) - rival_hits(kind, first, blocks, 160), 45u)
        << name;
  }
  const RivalKind& lru = *find_rival("lru");
  EXPECT_EQ(rival_hits(lru, all, blocks, 160), rival_hits(lru, first, blocks, 160));
}

TEST(Rivals, lru_arc_and_s3_fifo_reach_the_published_ratios_on_OLTP) {
  LOAD_OR_SKIP(trace, "cache/arc-OLTP.lis.zst");
  ASSERT_EQ(trace.references.size(), 914145u);
  ASSERT_EQ(trace.blocks, 186880u);
  struct Row {
    std::uint32_t pages;
    double lru, arc, s3_fifo;  // Percent; LRU and ARC are from the ARC paper.
  };
  const Row rows[] = {{1000, 32.83, 38.93, 40.80},
                      {2000, 42.47, 46.08, 46.96},
                      {5000, 53.65, 55.25, 55.86},
                      {10000, 60.70, 61.87, 62.59},
                      {15000, 64.63, 65.40, 65.97}};
  const auto ratio = [&](const char* name, std::uint32_t pages) {
    const auto hits = rival_hits(*find_rival(name), trace.references, trace.blocks, pages);
    return 100 * static_cast<double>(hits) / static_cast<double>(trace.references.size());
  };
  for (const Row& row : rows) {
    EXPECT_NEAR(ratio("lru", row.pages), row.lru, 0.005001) << row.pages;
    // At 1000 pages the result is 38.94, like that of another simulator: the paper does not say how
    // it rounds its target.
    EXPECT_NEAR(ratio("arc", row.pages), row.arc, row.pages == 1000 ? 0.0151 : 0.005001);
    // The figures are from another program, which may round its queues differently.
    EXPECT_NEAR(ratio("s3-fifo", row.pages), row.s3_fifo, 0.08) << row.pages;
  }
}

TEST(Rivals, all_reach_on_sprite_what_other_simulators_had_there) {
  LOAD_OR_SKIP(trace, "cache/lirs-sprite.trace.gz");
  struct Row {
    const char* name;
    double miss[4];  // At 5, 10, 20 and 50 % of the blocks, three digits.
    double margin;
  };
  // That simulator's S3-FIFO rounds its queues differently. Its W-TinyLFU counts exactly and never
  // forgets.
  const Row rows[] = {{"lru", {0.344, 0.135, 0.078, 0.057}, 0.00051},
                      {"clock", {0.347, 0.136, 0.078, 0.058}, 0.00051},
                      {"gclock", {0.337, 0.131, 0.079, 0.058}, 0.00051},
                      {"2q", {0.338, 0.143, 0.083, 0.064}, 0.00051},
                      {"arc", {0.346, 0.145, 0.085, 0.063}, 0.00051},
                      {"lirs", {0.350, 0.160, 0.104, 0.072}, 0.00051},
                      {"sieve", {0.395, 0.185, 0.099, 0.060}, 0.00051},
                      {"s3-fifo", {0.329, 0.140, 0.084, 0.061}, 0.0021},
                      {"w-tinylfu", {0.341, 0.195, 0.121, 0.080}, 0.0125}};
  const unsigned shares[] = {5, 10, 20, 50};
  for (const Row& row : rows) {
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t capacity = trace.blocks * shares[i] / 100;
      const auto hits = rival_hits(*find_rival(row.name), trace.references, trace.blocks, capacity);
      EXPECT_NEAR(1 - static_cast<double>(hits) / static_cast<double>(trace.references.size()),
                  row.miss[i], row.margin)
          << row.name << " at " << shares[i] << " %";
    }
  }
}

}  // namespace
}  // namespace tiermem

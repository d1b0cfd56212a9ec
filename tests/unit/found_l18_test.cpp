// Figures must be possible. Goal: no replay shows more hits than Belady's MIN, which knows the
// future. Method: the same references go through a real context and through MIN, for many shapes of
// traces and sizes of memory, with and without prefetches.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cli/policy_table.hpp"
#include "cli/replay_run.hpp"
#include "policy/rivals/min.hpp"
#include "recorded_traces.hpp"
#include "support/directory.hpp"

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kBlock = 16 << 10;

/// Returns the figures of one replay with a memory of `capacity` blocks.
ReplayOutcome replay(const std::vector<Reference>& references, std::uint32_t blocks,
                     std::uint32_t capacity, unsigned ahead = 0) {
  const test::Directory directory;
  auto context = Context::create(fmt::format("dram={}; nvme={}:256M; workers=1; log=off",
                                             capacity * kBlock, directory.path()));
  EXPECT_TRUE(context.ok()) << context.message();
  if (!context.ok()) {
    return {};
  }
  auto outcome = run_replay(**context,
                            {.references = references,
                             .blocks = blocks,
                             .block_bytes = kBlock,
                             .write_percent = 10,
                             .ahead = ahead},
                            [](std::uint64_t) {});
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  return outcome.ok() ? std::move(*outcome) : ReplayOutcome();
}

std::uint32_t blocks_in(const std::vector<Reference>& references) {
  std::uint32_t blocks = 0;
  for (const Reference& reference : references) {
    blocks = std::max(blocks, reference.block + 1);
  }
  return blocks;
}

/// Checks all properties that hold for the figures of any replay. All of `blocks` are used.
void expect_possible(const ReplayOutcome& run, const std::vector<Reference>& references,
                     std::uint32_t blocks, std::uint32_t capacity) {
  const ReplayCounts& counts = run.counts;
  EXPECT_EQ(counts.references(), references.size()) << "the kinds add up to the whole";
  EXPECT_EQ(counts.hits + counts.misses(), references.size());
  EXPECT_EQ(counts.first_uses, blocks) << "each block has one first use";
  EXPECT_LE(counts.hits, min_hits(references, blocks, capacity)) << "no policy beats MIN";
  EXPECT_GE(run.hit_ratio(), 0);
  EXPECT_LE(run.hit_ratio(), 1);
  EXPECT_EQ(run.wrong, 0U);
  // Each block that a reference waited for, or that was prefetched, was read.
  EXPECT_GE(run.read_bytes(), (counts.waited + counts.prefetched) * kBlock);
  EXPECT_GE(run.moved_bytes(), run.needed_bytes());
  EXPECT_GE(run.read_bytes(), run.stats.demanded);
  EXPECT_LE(run.stats.prefetched_unused, run.stats.prefetched);
  EXPECT_EQ(run.stats.host_bytes_in, run.read_bytes());
  EXPECT_LE(static_cast<double>(run.acquire.sum()) * 1e-9, run.seconds);
}

TEST(FaultsFound, L18_replay_of_blocks_used_once_has_no_hits) {
  std::vector<Reference> once(3000);
  for (std::uint32_t i = 0; i < once.size(); ++i) {
    once[i].block = i;
  }
  const ReplayOutcome run = replay(once, 3000, 256);
  EXPECT_EQ(run.counts.hits, 0U);
  EXPECT_EQ(run.counts.first_uses, 3000U);
  EXPECT_EQ(run.hit_ratio(), 0);
}

TEST(FaultsFound, L18_replay_of_random_traces_never_beats_min) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const std::uint32_t range = 100 + random() % 500;
    // At least 2 MiB, because frames of small blocks are cut from larger ones.
    const std::uint32_t capacity = 128 + random() % 200;
    std::vector<Reference> references(1000);
    std::vector<std::uint32_t> number(range, ~0U);  // In the order of their first reference.
    std::uint32_t blocks = 0;
    for (std::size_t i = 0; i < references.size(); ++i) {
      const std::uint32_t named = seed % 3 == 0   ? static_cast<std::uint32_t>(i) % range
                                  : seed % 3 == 1 ? random() % range
                                                  : std::min(random() % range, random() % range);
      if (number[named] == ~0U) {
        number[named] = blocks++;
      }
      references[i] = {number[named], random() % 10 == 0};
    }
    expect_possible(replay(references, blocks, capacity, seed % 4 == 0 ? 8 : 0), references, blocks,
                    capacity);
  }
}

TEST(FaultsFound, L18_replay_with_prefetches_counts_them_beside_the_hits) {
  std::vector<Reference> loop(1200);
  for (std::uint32_t i = 0; i < loop.size(); ++i) {
    loop[i].block = i % 300;
  }
  const ReplayOutcome run = replay(loop, 300, 128, 8);
  expect_possible(run, loop, 300, 128);
  EXPECT_GT(run.counts.prefetched, 0U);
}

TEST(FaultsFound, L18_replay_of_recorded_traces_never_beats_min) {
  LOAD_OR_SKIP(trace, "cache/lirs-multi1.trace.gz");
  std::vector<Reference> references = trace.references;
  references.resize(std::min<std::size_t>(references.size(), 6000));
  const std::uint32_t blocks = blocks_in(references);
  for (const std::uint32_t capacity : {blocks / 10, blocks / 2}) {
    SCOPED_TRACE(fmt::format("{} of {} blocks", capacity, blocks));
    expect_possible(replay(references, blocks, capacity), references, blocks, capacity);
  }
}

TEST(FaultsFound, L18_computed_miss_ratios_lie_between_min_and_all) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Trace trace;
    trace.name = "random";
    trace.blocks = 20 + random() % 60;
    trace.references.resize(600);
    for (Reference& reference : trace.references) {
      reference.block = std::min(random() % trace.blocks, random() % trace.blocks);
    }
    const TableOptions options{.shares = {1, 10, 50, 100}, .policies = policy_names()};
    const MissRatios table = miss_ratios(trace, options, [](const std::string&) {});
    const MissRatios::Row* min = table.find("min");
    ASSERT_NE(min, nullptr);
    for (const MissRatios::Row& row : table.rows) {
      for (std::size_t i = 0; i < row.at.size(); ++i) {
        EXPECT_GE(row.at[i], min->at[i]) << row.policy << ", seed " << seed;
        EXPECT_LE(row.at[i], 1) << row.policy << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tiermem::cli

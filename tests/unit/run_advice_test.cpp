// What a run's figures say about its settings.
#include "cli/run_advice.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A run of 100 s that lacked nothing.
RunSummary easy_run() {
  RunSummary run;
  run.seconds = 100;
  run.dram = 4 * kGiB;
  run.block = 16 * kGiB;
  run.totals.joined = 2;
  run.totals.counters = {.promoted = kGiB,
                         .waited_ns = 1'000'000'000,
                         .resident_peak = 4 * kGiB,
                         .tiered_peak = 7 * kGiB};
  return run;
}

bool says(const RunSummary& run, const std::string& words) {
  const auto lines = advice(run);
  return lines.size() == 1 && lines[0].find(words) != std::string::npos;
}

TEST(RunAdvice, a_run_that_lacked_nothing_gets_none) {
  EXPECT_TRUE(advice(easy_run()).empty());
}

TEST(RunAdvice, a_run_without_tiered_memory_is_told_why) {
  RunSummary run = easy_run();
  run.totals = {};
  EXPECT_TRUE(says(run, "malloc or mmap"));
}

TEST(RunAdvice, waiting_asks_for_memory_and_says_how_much) {
  RunSummary run = easy_run();
  run.totals.counters.waited_ns = 42'000'000'000;
  EXPECT_TRUE(says(run, "for 42.0 s, all added up, in 100.0 s"));
  EXPECT_TRUE(says(run, "--dram helps, and 7G would hold"));
  run.totals.counters.tiered_peak = 3 * kGiB;
  EXPECT_TRUE(says(run, "each process kept to its share"));
  run.totals.joined = 1;
  EXPECT_TRUE(says(run, "not for want of --dram"));
}

TEST(RunAdvice, a_full_block_tier_asks_for_a_larger_cap) {
  RunSummary run = easy_run();
  run.totals.counters.tiered_peak = 20 * kGiB;
  EXPECT_TRUE(says(run, "larger cap in --nvme"));
  run.block = 0;
  EXPECT_TRUE(says(run, "--nvme /directory:SIZE"));
}

TEST(RunAdvice, lost_pages_come_first) {
  RunSummary run = easy_run();
  run.totals.counters.poisoned = 3;
  run.totals.counters.waited_ns = 42'000'000'000;
  ASSERT_EQ(advice(run).size(), 2u);
  EXPECT_NE(advice(run)[0].find("3 pages"), std::string::npos);
}

TEST(RunAdvice, a_run_without_duration_waited_for_nothing) {
  RunSummary run = easy_run();
  run.seconds = 0;
  EXPECT_EQ(waited_part(run), 0);
}

}  // namespace
}  // namespace tiermem::cli

// Advice about a run's settings, derived from its figures.
#include "cli/run_advice.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cli/run_limits.hpp"

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A run of 100 s without any shortage.
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
  EXPECT_TRUE(says(run, "for 42.0 s in total during 100.0 s"));
  EXPECT_TRUE(says(run, "--dram helps, and 7G would hold"));
  run.totals.counters.tiered_peak = 3 * kGiB;
  EXPECT_TRUE(says(run, "each process kept to its share"));
  run.totals.joined = 1;
  EXPECT_TRUE(says(run, "more --dram does not help"));
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

TEST(RunAdvice, waiting_is_named_by_what_it_was_for) {
  RunSummary run = easy_run();
  run.totals.counters.waited_ns = 42'000'000'000;
  EXPECT_TRUE(says(run, ": for bytes to be read; "));
  run.totals.counters.promoted = 0;
  EXPECT_TRUE(says(run, ": for fresh memory; "));
  run.totals.counters.waited_for_room_ns = 42'000'000'000;
  EXPECT_TRUE(says(run, ": for other memory to leave; "));
  run.totals.counters.waited_for_room_ns = 21'000'000'000;
  EXPECT_TRUE(says(run, ": 50 % for other memory to leave, 50 % for fresh memory; "));
}

RunRefusal refusal(std::uint32_t pid, const char* text) {
  RunRefusal made{.pid = pid, .name = "prog"};
  std::strncpy(made.text, text, sizeof(made.text) - 1);
  return made;
}

TEST(RunAdvice, processes_outside_of_the_budget_are_named_once_for_each_reason) {
  RunSummary run = easy_run();
  EXPECT_TRUE(troubles(run).empty());
  run.refusals = {refusal(1, "no room"), refusal(2, "no room"), refusal(3, "no disk")};
  run.totals.refused = 3;
  run.outsiders = {{.pid = 4, .name = "other", .why = "it is static", .memory_peak = kGiB}};
  const auto lines = troubles(run);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "prog (1) and 1 more: no room");
  EXPECT_EQ(lines[1], "prog (3): no disk");
  EXPECT_EQ(lines[2],
            "other (4): no memory of this process is tiered: it is static; up to 1.00 GiB were "
            "outside the budget");
  run.totals.refused = 40;
  EXPECT_EQ(troubles(run).back(), "37 more processes were not tiered");
}

TEST(RunAdvice, a_run_of_which_all_processes_say_why_guesses_nothing) {
  RunSummary run = easy_run();
  run.totals = {};
  run.totals.refused = 1;
  run.refusals = {refusal(1, "no room")};
  EXPECT_TRUE(advice(run).empty());
}

TEST(RunAdvice, touches_that_end_in_a_signal_are_explained_by_process) {
  RunSummary run = easy_run();
  RunProcess process{.pid = 7, .name = "prog", .text = "the disk is full"};
  process.counters.poisoned = 2;
  run.processes = {process, RunProcess{.pid = 8, .name = "fine"}};
  ASSERT_EQ(troubles(run).size(), 1u);
  EXPECT_NE(troubles(run)[0].find("prog (7)"), std::string::npos);
  EXPECT_NE(troubles(run)[0].find("SIGBUS: the disk is full"), std::string::npos);
}

HostFacts with_limit(std::uint64_t limit, std::uint64_t usage, const char* file = "/group") {
  HostFacts facts;
  facts.memory_available = Fact::of(std::to_string(64 * kGiB));
  facts.cgroup_limit = Fact::of(std::to_string(limit));
  facts.cgroup_usage = Fact::of(std::to_string(usage));
  facts.cgroup_file = Fact::of(file);
  return facts;
}

TEST(LimitWatch, a_limit_that_falls_lowers_the_budget_and_one_that_rises_gives_it_back) {
  LimitWatch watch(with_limit(8 * kGiB, kGiB), 4 * kGiB);
  EXPECT_FALSE(watch.look(with_limit(8 * kGiB, 7 * kGiB), 3 * kGiB)) << "others' use is ignored";
  // Others use 1 of the 2 GiB.
  EXPECT_EQ(watch.look(with_limit(2 * kGiB, 2 * kGiB), kGiB), kGiB / 10 * 9);
  EXPECT_FALSE(watch.look(with_limit(2 * kGiB, 2 * kGiB), kGiB));
  EXPECT_EQ(watch.look(with_limit(8 * kGiB, 2 * kGiB), kGiB), 4 * kGiB);
  EXPECT_NE(watch.sentence().find("/group"), std::string::npos);
  EXPECT_NE(watch.sentence().find("is 2.00 GiB now"), std::string::npos);
}

// The use by others decides which of two nested groups leaves least.
TEST(LimitWatch, another_group_with_its_old_limit_is_no_news) {
  LimitWatch watch(with_limit(8 * kGiB, kGiB), 4 * kGiB);
  EXPECT_FALSE(watch.look(with_limit(16 * kGiB, 15 * kGiB, "/"), 4 * kGiB))
      << "4.5 GiB are its own";
  EXPECT_FALSE(watch.look(with_limit(8 * kGiB, 7 * kGiB), kGiB));
  EXPECT_FALSE(watch.look(with_limit(16 * kGiB, 16 * kGiB, "/"), kGiB));
  EXPECT_EQ(watch.sentence(), "");
}

TEST(LimitWatch, a_limit_that_is_taken_away_gives_the_budget_back) {
  LimitWatch watch(HostFacts{}, 4 * kGiB);
  EXPECT_EQ(watch.look(with_limit(2 * kGiB, kGiB), 0), kGiB / 10 * 9);
  EXPECT_FALSE(watch.look(with_limit(2 * kGiB, 0), 0)) << "others' use is ignored";
  HostFacts none;
  none.memory_available = Fact::of(std::to_string(64 * kGiB));
  EXPECT_EQ(watch.look(none, 0), 4 * kGiB);
}

TEST(LimitWatch, a_limit_that_never_falls_is_no_sentence) {
  LimitWatch watch(with_limit(8 * kGiB, kGiB), 4 * kGiB);
  EXPECT_FALSE(watch.look(with_limit(16 * kGiB, kGiB), 0));
  EXPECT_FALSE(watch.look(HostFacts{}, 0)) << "the limit is gone";
  EXPECT_EQ(watch.sentence(), "");
}

TEST(RunAdvice, a_run_without_duration_waited_for_nothing) {
  RunSummary run = easy_run();
  run.seconds = 0;
  EXPECT_EQ(waited_part(run), 0);
}

}  // namespace
}  // namespace tiermem::cli

// A process of a run, as the run's page shows it: the program of the preload library's tests, under
// the library. The test reads its counters, losses and texts from the page after it has ended.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "preload/run_page.hpp"
#include "support/directory.hpp"
#include "support/places.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class RunProcessTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kTotal = 64 * kMiB;  // The program expects this total.

  void SetUp() override {
    if (preload_library_path() == nullptr || ::access(preload_library_path(), R_OK) != 0 ||
        ::access(preloaded_program_path(), X_OK) != 0) {
      GTEST_SKIP() << "the preload library or its tests are not built";
    }
    ASSERT_EQ(host_.open(kTotal, 0), 0);
  }

  /// Runs one of the program's inner cases. Returns its status.
  int run(const std::string& inner, const std::string& disk) {
    const std::string filter = "--gtest_filter=Inner.DISABLED_" + inner;
    std::vector<std::string> variables = {
        std::string("LD_PRELOAD=") + preload_library_path(),
        std::string("TIERMEM_RUN=") + host_.path(),
        "TIERMEM_START=4K",
        "TIERMEM_THRESHOLD=4M",
        "TIERMEM_NVME=" + disk,
        "TIERMEM_LOG=off",
    };
    std::vector<std::string> words = {preloaded_program_path(), filter, "--gtest_brief=1",
                                      "--gtest_also_run_disabled_tests"};
    for (const char* const kept : {"TIERMEM_MUTANT", "TIERMEM_MUTANTS_REACHED"}) {
      if (const char* const value = ::getenv(kept); value != nullptr) {
        variables.push_back(std::string(kept) + "=" + value);
      }
    }
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      std::transform(texts.begin(), texts.end(), std::back_inserter(all),
                     [](std::string& text) { return text.data(); });
      all.push_back(nullptr);
      return all;
    };
    pid_t child = 0;
    int status = -1;
    EXPECT_EQ(::posix_spawn(&child, words[0].c_str(), nullptr, nullptr, pointers(words).data(),
                            pointers(variables).data()),
              0);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    host_.settle();
    return status;
  }
  std::string disk(const char* limit) const { return directory_.path() + ":" + limit; }
  std::vector<RunProcess> processes() const {
    std::vector<RunProcess> all(kRunRows);
    all.resize(host_.processes(all));
    return all;
  }

  const test::Directory directory_;
  RunHost host_;
};

TEST_F(RunProcessTest, process_with_twice_the_memory_has_its_figures) {
  ASSERT_EQ(run("works_in_a_run", disk("1G")), 0);
  ASSERT_EQ(processes().size(), 1u);
  const RunProcess one = processes()[0];
  EXPECT_STREQ(one.name, "preload_tests");
  EXPECT_FALSE(one.live);
  EXPECT_GE(one.want, 2 * kTotal - 16 * kMiB) << "smaller changes are not told";
  EXPECT_STREQ(one.text, "");
  const RunCounters& counters = one.counters;
  EXPECT_GE(counters.promoted, kTotal) << "it was read twice, and half of it was not in memory";
  EXPECT_GE(counters.demoted, kTotal);
  EXPECT_GE(counters.evicted, kTotal / 2) << "the second time it was clean";
  EXPECT_GT(counters.faults, 100u);
  EXPECT_GT(counters.waited_ns, 1'000'000u);
  EXPECT_LE(counters.waited_for_room_ns, counters.waited_ns);
  EXPECT_EQ(counters.poisoned, 0u);
  EXPECT_GE(counters.tiered_peak, 2 * kTotal);
  EXPECT_GE(counters.resident_peak, kTotal / 2);
  EXPECT_LE(counters.resident_peak, kTotal + kTotal / 4);
  EXPECT_EQ(host_.totals().joined, 1u);
  EXPECT_EQ(host_.totals().refused, 0u);
  EXPECT_EQ(host_.totals().counters.demoted, counters.demoted);
}

TEST_F(RunProcessTest, child_of_fork_has_figures_of_its_own) {
  ASSERT_EQ(run("forks_in_a_run", disk("1G")), 0);
  std::vector<RunProcess> both = processes();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(host_.totals().joined, 2u);
  if (both[0].counters.demoted < both[1].counters.demoted) {
    std::swap(both[0], both[1]);
  }
  const RunCounters& parent = both[0].counters;
  EXPECT_GE(parent.demoted, kTotal);
  for (const RunProcess& each : both) {
    EXPECT_STREQ(each.name, "preload_tests");
    EXPECT_FALSE(each.live);
  }
  EXPECT_NE(both[0].pid, both[1].pid);
}

TEST_F(RunProcessTest, process_without_room_says_what_to_raise) {
  const int status = run("has_none", disk("16M"));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
  ASSERT_EQ(processes().size(), 1u);
  const RunProcess one = processes()[0];
  const std::string said = one.text;
  EXPECT_NE(said.find("no room for"), std::string::npos) << said;
  EXPECT_NE(said.find("raise --dram"), std::string::npos) << said;
  EXPECT_EQ(said.find("release views"), std::string::npos) << "it holds none: " << said;
  EXPECT_GE(one.counters.poisoned, 1u);
}

TEST_F(RunProcessTest, process_locks_its_memory_then_it_keeps_to_no_share) {
  EXPECT_EQ(run("locks_everything_when_it_has_begun", disk("1G")), 0);
  EXPECT_EQ(processes().size(), 1u);
}

TEST_F(RunProcessTest, process_that_cannot_be_tiered_is_told) {
  EXPECT_EQ(run("many_small_blocks", directory_.path() + "/none:1G"), 0) << "it works without";
  std::vector<RunRefusal> refusals(kRunRefusals);
  ASSERT_EQ(host_.refusals(refusals), 1u);
  EXPECT_STREQ(refusals[0].name, "preload_tests");
  EXPECT_NE(refusals[0].pid, 0u);
  const std::string said = refusals[0].text;
  EXPECT_EQ(said.find("no memory of this process is tiered: "), 0u) << said;
  EXPECT_NE(said.find("/none"), std::string::npos) << said;
}

}  // namespace
}  // namespace tiermem

// Parsing of /proc/…/stat, with process names that look like its fields.
#include "os/proc_stat.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/directory.hpp"

namespace tiermem {
namespace {

// Returns a line in which each of the fields 4 to 52 holds its own number.
std::string line(const std::string& name, char state) {
  std::string text = "17 (" + name + ") " + state;
  for (int field = 4; field <= 52; ++field) {
    text += " " + std::to_string(field);
  }
  return text + "\n";
}

TEST(ProcStat, names_may_hold_anything) {
  const test::Directory directory;
  const std::string path = directory.path() + "/stat";
  for (const char* name : {"sh", "a b", ") R 1", "((", "", "x) S 2 (y"}) {
    std::ofstream(path) << line(name, 'Z');
    const ProcStat stat(path.c_str());
    EXPECT_TRUE(stat.found()) << name;
    EXPECT_EQ(stat.state(), 'Z') << name;
    EXPECT_EQ(stat.number(ProcStat::kUserTicks), 14) << name;
    EXPECT_EQ(stat.number(ProcStat::kThreads), 20) << name;
    EXPECT_EQ(stat.number(ProcStat::kStart), 22) << name;
    EXPECT_EQ(stat.number(ProcStat::kProcessor), 39) << name;
  }
}

TEST(ProcStat, what_is_not_there_is_not_found) {
  const test::Directory directory;
  const std::string path = directory.path() + "/stat";
  EXPECT_FALSE(ProcStat(path.c_str()).found());
  for (const char* text : {"", "17", "17 (sh", "17 (sh)"}) {
    std::ofstream(path) << text;
    const ProcStat stat(path.c_str());
    EXPECT_FALSE(stat.found()) << text;
    EXPECT_EQ(stat.state(), '?') << text;
    EXPECT_EQ(stat.number(ProcStat::kStart), -1) << text;
  }
  std::ofstream(path) << "17 (sh) S 1 2";
  const ProcStat cut(path.c_str());
  EXPECT_EQ(cut.state(), 'S');
  EXPECT_EQ(cut.number(ProcStat::kStart), -1);
}

TEST(ProcStat, this_process_runs) {
  const ProcStat stat("/proc/self/stat");
  ASSERT_TRUE(stat.found());
  EXPECT_EQ(stat.state(), 'R');
  EXPECT_GE(stat.number(ProcStat::kThreads), 1);
  EXPECT_GE(stat.number(ProcStat::kProcessor), 0);
}

}  // namespace
}  // namespace tiermem

// The benchmarks switch zswap on, and restore its former state however the process ends. The files
// are in a directory of the test and not the kernel's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "bench/swap.hpp"
#include "support/directory.hpp"

namespace tiermem::bench {
namespace {

class ZswapSetting : public ::testing::Test {
 protected:
  void found(const std::string& enabled) {
    std::ofstream(directory_.path() + "/enabled") << enabled << "\n";
    std::ofstream(directory_.path() + "/compressor") << "lzo\n";
  }
  std::string enabled() const {
    std::string word;
    std::ifstream(directory_.path() + "/enabled") >> word;
    return word;
  }
  test::Directory directory_;
};

TEST_F(ZswapSetting, is_on_for_a_while_and_then_what_it_was) {
  for (const std::string before : {"N", "Y"}) {
    found(before);
    {
      auto zswap = Zswap::on(directory_.path());
      ASSERT_TRUE(zswap.ok()) << zswap.message();
      EXPECT_EQ(enabled(), "Y");
      EXPECT_EQ((*zswap)->compressor(), "lzo");
    }
    EXPECT_EQ(enabled(), before);
  }
}

TEST_F(ZswapSetting, is_put_back_when_the_benchmark_is_killed) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    found("N");
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t benchmark = ::fork();
    if (benchmark == 0) {
      ::signal(signal, SIG_DFL);  // A shell's background jobs ignore SIGINT, and so do its tests.
      const auto zswap = Zswap::on(directory_.path());
      const char told = zswap.ok() ? 'y' : 'n';
      (void)!::write(ready[1], &told, 1);
      while (true) {
        ::pause();
      }
    }
    char told = 0;
    EXPECT_EQ(::read(ready[0], &told, 1), 1);
    EXPECT_EQ(told, 'y');
    EXPECT_EQ(enabled(), "Y");
    ::kill(benchmark, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(benchmark, &status, 0), benchmark);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    for (int i = 0; i < 500 && enabled() != "N"; ++i) {
      // The keeper that restores it is another process.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(enabled(), "N") << signal;
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

TEST_F(ZswapSetting, that_is_not_there_is_told_of) {
  auto none = Zswap::on(directory_.path() + "/nowhere");
  ASSERT_EQ(none.code(), Code::unavailable);
  EXPECT_NE(std::string(none.message()).find("no zswap"), std::string::npos) << none.message();
  found("maybe");
  EXPECT_EQ(Zswap::on(directory_.path()).code(), Code::unavailable);
  EXPECT_EQ(enabled(), "maybe");
}

}  // namespace
}  // namespace tiermem::bench

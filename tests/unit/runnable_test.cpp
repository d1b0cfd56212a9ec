// The number of threads that want a processor.
#include "os/runnable.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/threads.hpp"

namespace tiermem {
namespace {

TEST(Runnable, this_thread_is_counted) {
  const Runnable now = runnable_now();
  EXPECT_GE(now.threads, 1U);
  EXPECT_GE(now.processors, 1U);
}

TEST(Runnable, more_threads_than_processors_spin_then_the_machine_is_crowded) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i <= runnable_now().processors; ++i) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  EXPECT_TRUE(test::comes_true([] { return runnable_now().is_crowded(); }));
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Runnable, nothing_is_known_then_the_machine_counts_as_crowded) {
  EXPECT_TRUE(Runnable{}.is_crowded());
}

}  // namespace
}  // namespace tiermem

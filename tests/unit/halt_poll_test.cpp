// Keeping a processor awake: when and where the spinner runs, and at which priority.
#include "runtime/halt_poll.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "support/threads.hpp"

namespace tiermem {
namespace {

using namespace std::chrono_literals;
using test::comes_true;
using test::processor_time;
using test::thread_named;
constexpr std::int64_t kSecond = 1'000'000'000;

// Returns the spinner's thread id. The spinner sets its name when it first runs.
std::uint32_t wait_for_spinner() {
  comes_true([] { return thread_named("tiermem-poll") != 0; });
  return thread_named("tiermem-poll");
}

TEST(HaltPoll, it_spins_until_its_time_and_sleeps_again) {
  HaltPoll poll;
  poll.start();
  const std::uint32_t thread = wait_for_spinner();
  ASSERT_NE(thread, 0U);
  std::this_thread::sleep_for(20ms);
  const std::int64_t before = processor_time(thread);
  EXPECT_LT(before, kSecond / 100) << "it sleeps until it is asked";
  // The spinner runs only when no other thread wants to. Once it loses its processor it sleeps
  // until the next spin_until(), so it seldom runs on a busy machine.
  const auto spins = [&] {
    poll.spin_until(now_ns() + 60 * kSecond);
    return processor_time(thread) > before + kSecond / 1000;
  };
  for (int i = 0; i < 12 && !spins(); ++i) {
    comes_true(spins);
  }
  EXPECT_GT(processor_time(thread), before + kSecond / 1000);
  poll.spin_until(now_ns());
  std::this_thread::sleep_for(20ms);  // The spinner looks at the time within these 20 ms.
  const std::int64_t after = processor_time(thread);
  std::this_thread::sleep_for(50ms);
  EXPECT_LT(processor_time(thread), after + kSecond / 100);
  poll.stop();
  EXPECT_TRUE(comes_true([] { return thread_named("tiermem-poll") == 0; }));
}

TEST(HaltPoll, it_gives_way_to_everybody_and_takes_no_signals) {
  HaltPoll poll;
  poll.start();
  const std::uint32_t thread = wait_for_spinner();
  ASSERT_NE(thread, 0U);
  const auto scheduler = [&] { return ::sched_getscheduler(static_cast<pid_t>(thread)); };
  EXPECT_EQ(scheduler(), SCHED_OTHER) << "an idle thread holds up the end of its process";
  poll.spin_until(now_ns() + 60 * kSecond);
  EXPECT_TRUE(comes_true([&] { return scheduler() == SCHED_IDLE; }));
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  std::uint64_t blocked = 0;
  for (std::string word; status >> word;) {
    if (word == "SigBlk:") {
      status >> std::hex >> blocked;
    }
  }
  EXPECT_NE(blocked & (1ULL << (SIGUSR1 - 1)), 0U);
}

TEST(HaltPoll, it_follows_a_thread_to_its_processor) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const auto own = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  HaltPoll poll;
  poll.start();
  const std::uint32_t thread = wait_for_spinner();
  ASSERT_NE(thread, 0U);
  for (int at = 0; at < CPU_SETSIZE; ++at) {
    if (CPU_ISSET(static_cast<unsigned>(at), &allowed)) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<unsigned>(at), &one);
      ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
      EXPECT_EQ(processor_of(own), at);
      poll.move_to(processor_of(own));
      EXPECT_TRUE(comes_true([&] {
        poll.spin_until(now_ns() + 60 * kSecond);
        return processor_of(thread) == at;
      })) << at;
    }
  }
  EXPECT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
  poll.move_to(-1);
  poll.move_to(1 << 20);  // No such processor: the spinner does not move.
}

TEST(HaltPoll, nobody_knows_the_processor_of_a_thread_that_is_not_there) {
  EXPECT_EQ(processor_of(0), -1);
  EXPECT_EQ(processor_of(~0U), -1);
}

}  // namespace
}  // namespace tiermem

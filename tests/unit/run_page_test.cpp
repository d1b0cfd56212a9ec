// The page that the processes of a run share. The processes are real: children of fork that are
// killed at random instants.
#include "preload/run_page.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "in_child.hpp"
#include "preload/run_owner.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::vector<std::uint64_t> divided(std::uint64_t total, const std::vector<std::uint64_t>& wants) {
  std::vector<std::uint64_t> shares(wants.size());
  divide(total, wants, shares);
  return shares;
}

using Sizes = std::vector<std::uint64_t>;

TEST(Divide, one_process_has_everything) {
  EXPECT_EQ(divided(1000 * kMiB, {0}), Sizes{1000 * kMiB});
  EXPECT_EQ(divided(1000 * kMiB, {~std::uint64_t{0}}), Sizes{1000 * kMiB});
}

TEST(Divide, who_wants_little_gets_it_and_the_rest_is_equal) {
  const Sizes wants = {100 * kMiB, 900 * kMiB, 800 * kMiB};
  EXPECT_EQ(divided(1000 * kMiB, wants), (Sizes{100 * kMiB, 450 * kMiB, 450 * kMiB}));
}

TEST(Divide, everyone_has_the_floor) {
  EXPECT_EQ(divided(1000 * kMiB, {0, 2000 * kMiB}), (Sizes{kRunFloor, 1000 * kMiB - kRunFloor}));
  EXPECT_EQ(divided(8 * kMiB, {0, 2000 * kMiB}), (Sizes{4 * kMiB, 4 * kMiB}));
}

TEST(Divide, what_nobody_wants_is_divided_equally) {
  EXPECT_EQ(divided(1000 * kMiB, {100 * kMiB, 300 * kMiB}), (Sizes{400 * kMiB, 600 * kMiB}));
}

// For any wants: the shares never exceed the total, and use all of it except for rounding. No
// process gets more than it needs while another lacks some, and none gets less than the floor. A
// process that wants more gets at least as much.
TEST(Divide, shares_are_fair_for_any_wants) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    const std::uint64_t total = random() >> (random() % 64);
    Sizes wants(1 + random() % (round % 100 == 0 ? kRunRows : 8));
    for (std::uint64_t& want : wants) {
      want = random() >> (random() % 64);
    }
    const Sizes shares = divided(total, wants);
    const std::uint64_t floor = std::min(kRunFloor, total / wants.size());
    std::uint64_t left = total;
    bool somebody_lacks = false;
    for (std::size_t i = 0; i < wants.size(); ++i) {
      ASSERT_LE(shares[i], left) << "round " << round;
      left -= shares[i];
      ASSERT_GE(shares[i], floor) << "round " << round;
      somebody_lacks |= shares[i] < wants[i];
    }
    ASSERT_LT(left, wants.size()) << "round " << round;
    for (std::size_t i = 0; i < wants.size(); ++i) {
      ASSERT_TRUE(!somebody_lacks || shares[i] <= std::max(wants[i], floor)) << "round " << round;
      for (std::size_t j = 0; j < wants.size(); ++j) {
        ASSERT_TRUE(wants[i] > wants[j] || shares[i] <= shares[j]) << "round " << round;
      }
    }
  }
}

/// A run of 1000 MiB, and its processes.
class Run : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(host_.open(1000 * kMiB, 0), 0); }
  void TearDown() override {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

  template <typename Body>
  pid_t start(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      RunSeat seat = RunSeat::take(host_.path());
      body(seat);
      ::_exit(0);
    }
    children_.push_back(child);
    return child;
  }
  int end(pid_t child, int signal = 0) {
    std::erase(children_, child);
    if (signal != 0) {
      ::kill(child, signal);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
  std::vector<RunProcess> processes() const {
    std::vector<RunProcess> all(kRunRows);
    all.resize(host_.processes(all));
    return all;
  }
  RunProcess process(pid_t pid) const {
    for (const RunProcess& one : processes()) {
      if (one.pid == static_cast<std::uint32_t>(pid)) {
        return one;
      }
    }
    return {};
  }
  template <typename Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  RunHost host_;
  std::vector<pid_t> children_;
};

using RunPageTest = Run;

/// Hides /proc from this process permanently. Returns false where mounting is not permitted.
bool hide_proc() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

TEST_F(RunPageTest, a_process_without_proc_joins_no_run_and_says_so) {
  if (!in_child(hide_proc)) {
    GTEST_SKIP() << "mounting is not permitted";
  }
  EXPECT_TRUE(in_child([this] {
    RunSeat seat = RunSeat::take(host_.path());
    return hide_proc() && seat.ok() && run::own_identity() == 0 && !seat.join("nameless") &&
           std::string(seat.reason()).find("/proc is missing") != std::string::npos && !seat.joined();
  }));
  EXPECT_TRUE(in_child([] {
    RunHost none;
    return hide_proc() && none.open(1000 * kMiB, 0) == ENOENT;
  }));
  EXPECT_TRUE(processes().empty());
}

// A process that /proc does not show is gone only if it cannot be signalled either.
TEST_F(RunPageTest, a_process_that_proc_hides_keeps_its_row_until_it_is_gone) {
  if (!in_child(hide_proc)) {
    GTEST_SKIP() << "mounting is not permitted";
  }
  const std::uint64_t living = run::own_identity();
  const pid_t child = start([](RunSeat&) { ::pause(); });
  const std::uint64_t ended = run::identity_of(static_cast<std::uint32_t>(child));
  ASSERT_NE(ended, 0u);
  EXPECT_EQ(run::pid_of(ended), static_cast<std::uint32_t>(child));
  EXPECT_FALSE(run::is_of(ended, ended)) << "an identity has no state";
  end(child, SIGKILL);
  EXPECT_EQ(run::identity_of(static_cast<std::uint32_t>(child)), 0u);
  for (const bool hidden : {false, true}) {
    EXPECT_TRUE(in_child([&] {
      static RunPage page;
      run::Row* const first = run::claim(page, living);
      run::Row* const second = run::claim(page, ended);
      first->owner.store(run::owned(run::State::live, living));
      second->owner.store(run::owned(run::State::live, ended));
      return (!hidden || hide_proc()) && run::end_rows_of_the_dead(page) &&
             run::state_of(first->owner.load()) == run::State::live &&
             run::is_of(first->owner.load(), living) &&
             run::state_of(second->owner.load()) == run::State::ended &&
             run::pid_of(second->owner.load()) == run::pid_of(ended) &&
             !run::end_rows_of_the_dead(page) && run::life_of(living).found != hidden;
    })) << hidden;
  }
}

TEST_F(RunPageTest, a_process_that_ends_while_it_joins_is_forgotten) {
  EXPECT_TRUE(in_child([] {
    static RunPage page;
    run::Row* const row = run::claim(page, run::own_identity());
    const std::uint64_t owner = row->owner.load();
    return run::state_of(owner) == run::State::joining && run::end_row(*row, owner) &&
           run::pid_of(row->owner.load()) == 0 && !run::end_row(*row, owner);
  }));
}

TEST_F(RunPageTest, a_seat_says_why_it_is_none) {
  EXPECT_FALSE(RunSeat::take(nullptr).ok());
  EXPECT_STREQ(RunSeat::take(nullptr).reason(), "not started by tiermem run");
  EXPECT_FALSE(RunSeat::take("/proc/1/fd/4711").ok());
  EXPECT_FALSE(RunSeat::take("/dev/null").ok());
  EXPECT_NE(std::string(RunSeat::take("/proc/self/exe").reason()), "");
  EXPECT_TRUE(RunSeat::take(host_.path()).ok());
}

TEST_F(RunPageTest, two_seats_have_halves_and_the_one_that_stays_has_all) {
  const pid_t first = start([](RunSeat& seat) {
    seat.join("first");
    seat.want(2000 * kMiB);
    ::pause();
  });
  ASSERT_TRUE(eventually([&] { return process(first).share == 1000 * kMiB; }));
  const pid_t second = start([](RunSeat& seat) {
    seat.join("a name that is too long");
    seat.want(2000 * kMiB);
    ::pause();
  });
  ASSERT_TRUE(eventually([&] { return process(first).share == 500 * kMiB; }));
  EXPECT_EQ(process(second).share, 500 * kMiB);
  EXPECT_STREQ(process(second).name, "a name that is ");
  end(first, SIGKILL);
  const std::uint32_t before = host_.generation();
  host_.settle();
  EXPECT_NE(host_.generation(), before);
  EXPECT_EQ(process(second).share, 1000 * kMiB);
  EXPECT_FALSE(process(first).live);
}

TEST_F(RunPageTest, a_lower_total_is_divided_at_once_and_a_higher_one_again) {
  const pid_t first = start([](RunSeat& seat) {
    seat.join("first");
    seat.want(2000 * kMiB);
    ::pause();
  });
  ASSERT_TRUE(eventually([&] { return process(first).share == 1000 * kMiB; }));
  const std::uint32_t before = host_.generation();
  host_.set_total(300 * kMiB);
  EXPECT_NE(host_.generation(), before);
  EXPECT_EQ(process(first).share, 300 * kMiB);
  host_.set_total(1000 * kMiB);
  EXPECT_EQ(process(first).share, 1000 * kMiB);
}

TEST_F(RunPageTest, processes_that_are_refused_are_kept_with_their_reason) {
  const RunSeat seat = RunSeat::take(host_.path());
  std::vector<RunRefusal> refusals(kRunRefusals + 1);
  EXPECT_EQ(host_.refusals(refusals), 0u);
  const std::string longest(2 * kRunTextBytes, 'x');
  seat.refuse(11, "a name that is too long", "no room");
  seat.refuse(12, "second", longest.c_str());
  ASSERT_EQ(host_.refusals(refusals), 2u);
  EXPECT_EQ(refusals[0].pid, 11u);
  EXPECT_STREQ(refusals[0].name, "a name that is ");
  EXPECT_STREQ(refusals[0].text, "no room");
  EXPECT_EQ(std::string(refusals[1].text), longest.substr(0, kRunTextBytes - 1));
  for (std::size_t i = 0; i < kRunRefusals; ++i) {
    seat.refuse(100, "many", "no room");
  }
  EXPECT_EQ(host_.refusals(refusals), kRunRefusals);
  EXPECT_EQ(host_.totals().refused, kRunRefusals + 2);
}

TEST_F(RunPageTest, a_refused_touch_is_counted_before_the_counters_are_published) {
  const pid_t process_of_run = start([](RunSeat& seat) {
    seat.join("refused");
    seat.say("no room yet");
    seat.publish({});
    seat.say_refused("no room");
    seat.publish({});  // Text and counters from before the touch.
    ::raise(SIGBUS);
  });
  end(process_of_run);
  host_.settle();
  EXPECT_EQ(process(process_of_run).counters.poisoned, 1u);
  EXPECT_STREQ(process(process_of_run).text, "no room");
}

TEST(RunStart, processes_of_a_small_run_have_little_plain_memory) {
  EXPECT_EQ(run_start(~std::uint64_t{0}), 32 * kMiB);
  EXPECT_EQ(run_start(1024 * kMiB), 32 * kMiB);
  EXPECT_EQ(run_start(512 * kMiB), 16 * kMiB);
  EXPECT_EQ(run_start(256 * kMiB), 8 * kMiB);
  EXPECT_EQ(run_start(64 * kMiB), 8 * kMiB);
  EXPECT_EQ(run_start(32 * kMiB), 4 * kMiB);
  EXPECT_EQ(run_start(0), kMiB);
}

TEST_F(RunPageTest, a_zombie_is_dead) {
  const pid_t child = start([](RunSeat& seat) { seat.join("zombie"); });
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  ASSERT_TRUE(process(child).live);
  host_.settle();
  EXPECT_FALSE(process(child).live);
}

// Three processes want everything. One sleeps and lends its share until it wakes.
TEST_F(RunPageTest, who_uses_no_processor_lends_its_share) {
  constexpr std::int64_t kLook = 600'000'000;
  const pid_t sleeper = start([](RunSeat& seat) {
    ::signal(SIGUSR1, [](int) {});
    seat.join("sleeps");
    seat.want(2000 * kMiB);
    ::pause();
    seat.awake();
    ::pause();
  });
  const pid_t spinner = start([](RunSeat& seat) {
    seat.join("spins");
    seat.want(2000 * kMiB);
    for (;;) {
      (void)seat.share();
    }
  });
  RunSeat mine = RunSeat::take(host_.path());
  ASSERT_TRUE(mine.join("looks"));
  mine.want(2000 * kMiB);
  ASSERT_TRUE(eventually([&] {
    return process(sleeper).share / kMiB == 333 && process(spinner).share / kMiB == 333;
  }));
  std::int64_t now = 10 * kLook;
  const auto look = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    mine.look_for_idle(now += kLook);
    return process(sleeper).share;
  };
  EXPECT_EQ(look() / kMiB, 333u) << "one look tells nothing";
  ASSERT_TRUE(eventually([&] { return look() == kRunFloor; }));
  EXPECT_EQ(process(spinner).share / kMiB, 484u);
  EXPECT_EQ(mine.share() / kMiB, 484u);
  ASSERT_EQ(::kill(sleeper, SIGUSR1), 0);
  EXPECT_TRUE(eventually([&] { return process(sleeper).share / kMiB == 333; }));
  EXPECT_EQ(mine.share() / kMiB, 333u);
  now += 10 * kLook;
  EXPECT_EQ(look() / kMiB, 333u) << "what was seen long ago tells nothing";
  end(sleeper, SIGKILL);
  mine.leave();
}

TEST_F(RunPageTest, a_waiter_wakes_when_its_share_changes) {
  const pid_t child = start([](RunSeat& seat) {
    seat.join("waits");
    seat.want(2000 * kMiB);
    std::uint32_t seen = seat.generation();
    while (seat.share() != 500 * kMiB) {
      seen = seat.wait_for_change(seen);
    }
    ::_exit(42);
  });
  ASSERT_TRUE(eventually([&] { return process(child).want == 2000 * kMiB; }));
  const pid_t other = start([](RunSeat& seat) {
    seat.join("other");
    seat.want(2000 * kMiB);
    ::pause();
  });
  EXPECT_EQ(WEXITSTATUS(end(child)), 42);
  EXPECT_GT(other, 0);
}

// Memory that a process still holds is not given to another process before the first one has
// released it.
TEST_F(RunPageTest, a_share_grows_only_when_the_other_let_go) {
  const pid_t first = start([](RunSeat& seat) {
    seat.join("holds");
    seat.want(2000 * kMiB);
    if (seat.hold(1000 * kMiB) != 1000 * kMiB) {
      ::_exit(1);
    }
    ::raise(SIGSTOP);
    ::_exit(seat.hold(500 * kMiB) == 500 * kMiB && ::pause() == 0 ? 0 : 2);
  });
  int status = 0;
  ::waitpid(first, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  const pid_t second = start([](RunSeat& seat) {
    seat.join("wants");
    seat.want(2000 * kMiB);
    if (seat.hold(500 * kMiB) != 0) {
      ::_exit(1);
    }
    ::raise(SIGSTOP);
    std::uint32_t seen = seat.generation();
    while (seat.share() == 0) {
      seen = seat.wait_for_change(seen);
    }
    ::_exit(seat.hold(700 * kMiB) == 500 * kMiB ? 42 : 2);
  });
  ::waitpid(second, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status)) << "it was given what the other holds";
  EXPECT_EQ(process(first).share, 500 * kMiB);
  EXPECT_EQ(process(second).share, 0u);
  ::kill(second, SIGCONT);
  ::kill(first, SIGCONT);
  EXPECT_EQ(WEXITSTATUS(end(second)), 42);
}

TEST_F(RunPageTest, a_forked_child_has_a_row_of_its_own) {
  const pid_t child = start([](RunSeat& seat) {
    seat.join("family");
    seat.publish({.faults = 3});
    const bool ok = in_child([&] {
      const bool joined = seat.after_fork_in_child();
      seat.publish({.faults = 4});
      return joined;
    });
    ::_exit(ok ? 42 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(end(child)), 42);
  EXPECT_EQ(host_.totals().joined, 2u);
  EXPECT_EQ(host_.totals().counters.faults, 7u);
  EXPECT_EQ(processes().size(), 2u);
}

// The child's pages are its parent's, so no share changes until the child says what it keeps. After
// that the child has its share, and the others release that amount.
TEST_F(RunPageTest, a_forked_child_is_a_guest_until_it_settles) {
  void* const shared =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& told = *new (shared) std::atomic<int>(0);     // Set by this test for the child.
  auto& done = *new (&told + 1) std::atomic<int>(0);  // Set by the child for this test.
  const auto wait_for = [](const std::atomic<int>& step, int number) {
    while (step.load() < number) {
      ::usleep(1000);
    }
  };
  const pid_t parent = start([&](RunSeat& seat) {
    seat.join("family");
    seat.want(2000 * kMiB);
    if (seat.hold(seat.share()) != 1000 * kMiB) {
      ::_exit(1);
    }
    const bool ok = in_child([&] {
      if (!seat.after_fork_in_child()) {
        return false;
      }
      seat.want(2000 * kMiB);
      done.store(1);
      wait_for(told, 1);
      seat.settle(1000 * kMiB);
      const bool halved = seat.share() == 500 * kMiB && seat.hold(500 * kMiB) == 500 * kMiB;
      done.store(2);
      wait_for(told, 2);
      return halved;
    });
    ::_exit(ok && seat.hold(seat.share()) == 500 * kMiB ? 42 : 2);
  });
  ASSERT_TRUE(eventually([&] { return done.load() == 1; }));
  EXPECT_EQ(process(parent).share, 1000 * kMiB);
  EXPECT_EQ(host_.charged(), 1000 * kMiB);
  told.store(1);
  ASSERT_TRUE(eventually([&] { return done.load() == 2; }));
  EXPECT_EQ(process(parent).share, 500 * kMiB);
  EXPECT_EQ(host_.charged(), 1500 * kMiB) << "the parent holds what it had";
  told.store(2);
  EXPECT_EQ(WEXITSTATUS(end(parent)), 42);
  ::munmap(shared, 4096);
}

// The process and its start time are the same, but the program is another: the page gets no sign of
// an exec.
TEST_F(RunPageTest, a_program_takes_over_from_the_one_it_replaced) {
  const pid_t child = start([this](RunSeat& seat) {
    seat.join("shell");
    seat.publish({.faults = 3});
    RunSeat next = RunSeat::take(host_.path());
    next.join("program");
    next.publish({.faults = 4});
    ::pause();
  });
  ASSERT_TRUE(eventually([&] { return host_.totals().counters.faults == 7; }));
  const std::vector<RunProcess> all = processes();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& one) { return one.live; }), 1);
  EXPECT_GT(child, 0);
}

TEST_F(RunPageTest, figures_of_the_ended_stay) {
  const pid_t child = start([](RunSeat& seat) {
    seat.join("short");
    seat.publish(
        {.promoted = 5, .resident = 7 * kMiB, .tiered = 9 * kMiB, .tiered_peak = 10 * kMiB});
    seat.say("the disk is full");
    seat.leave();
  });
  end(child);
  const RunProcess ended = process(child);
  EXPECT_FALSE(ended.live);
  EXPECT_STREQ(ended.text, "the disk is full");
  EXPECT_EQ(ended.counters.promoted, 5u);
  EXPECT_EQ(ended.counters.resident, 0u);
  EXPECT_EQ(ended.counters.resident_peak, 7 * kMiB);
  const RunCounters total = host_.totals().counters;
  EXPECT_EQ(total.promoted, 5u);
  EXPECT_EQ(total.resident, 0u);
  EXPECT_EQ(total.resident_peak, 7 * kMiB);
  EXPECT_EQ(total.tiered_peak, 10 * kMiB);
}

TEST_F(RunPageTest, rows_are_used_again_and_nothing_is_counted_twice) {
  constexpr unsigned kMany = 600;
  for (unsigned i = 0; i < kMany; ++i) {
    end(start([&](RunSeat& seat) {
      seat.join("one of many");
      seat.publish({.evicted = 1});
      if (i % 2 == 0) {
        seat.leave();
      }
    }));
  }
  EXPECT_EQ(host_.totals().joined, kMany);
  EXPECT_EQ(host_.totals().counters.evicted, kMany);
  EXPECT_LE(processes().size(), kRunRows);
  for (const RunProcess& one : processes()) {
    EXPECT_EQ(one.counters.evicted, 1u) << "those of the row's earlier processes are not its own";
  }
}

TEST_F(RunPageTest, the_last_row_is_told) {
  for (std::size_t i = 0; i < kRunRows; ++i) {
    start([](RunSeat& seat) {
      seat.join("one of many");
      ::pause();
    });
  }
  ASSERT_TRUE(eventually([&] { return host_.totals().joined == kRunRows; }));
  RunSeat seat = RunSeat::take(host_.path());
  EXPECT_FALSE(seat.join("one too many"));
  EXPECT_NE(std::string(seat.reason()).find("256"), std::string::npos);
}

/// Memory, besides the page, that the test and its children share.
struct Witness {
  std::atomic<std::uint64_t> published;  ///< Evictions, counted after each was published.
};

Witness* make_witness() {
  void* at =
      ::mmap(nullptr, sizeof(Witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : new (at) Witness{};
}

/// A child of the storm runs this until it is killed.
[[noreturn]] void live_in_the_storm(RunSeat& seat, Witness& witness, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uint64_t count = 0;
  if (!seat.join("storm")) {
    ::_exit(1);
  }
  for (;;) {
    switch (random() % 5) {
      case 0:
        seat.want(random() % (2000 * kMiB));
        break;
      case 1:
        seat.hold(seat.share());
        break;
      case 2:
        seat.hold(random() % (1000 * kMiB));
        break;
      case 3:
        seat.publish({.evicted = ++count});
        witness.published.fetch_add(1);
        break;
      default:
        seat.leave();
        seat.join("storm");
        count = 0;
    }
  }
}

// Property: processes join, want, hold, leave and are killed at random instants. Whenever all are
// stopped, shares and held memory are within the budget. The totals contain each published count
// once. After the storm the next process has everything.
TEST_F(RunPageTest, nothing_is_lost_when_processes_are_killed) {
  std::mt19937_64 random(11);
  Witness* witness = make_witness();
  ASSERT_NE(witness, nullptr);
  constexpr std::uint64_t kRounds = 300;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    while (children_.size() < 6) {
      start([&, seed = random()](RunSeat& seat) { live_in_the_storm(seat, *witness, seed); });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    // Inside hold(), a process may for a moment show memory that it was not given and does not use.
    // A second look does not show it.
    for (int tries = 0; tries == 0 || (tries < 10 && host_.charged() > 1000 * kMiB); ++tries) {
      for (const pid_t child : children_) {
        ::kill(child, SIGCONT);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
      for (const pid_t child : children_) {
        ::kill(child, SIGSTOP);
        ::waitpid(child, nullptr, WUNTRACED);
      }
    }
    ASSERT_LE(host_.charged(), 1000 * kMiB) << "round " << round;
    end(children_[random() % children_.size()], SIGKILL);
    ASSERT_LE(host_.charged(), 1000 * kMiB) << "round " << round;
    for (const pid_t child : children_) {
      ::kill(child, SIGCONT);
    }
  }
  while (!children_.empty()) {
    end(children_.back(), SIGKILL);
  }
  host_.settle();
  const std::uint64_t counted = host_.totals().counters.evicted;
  EXPECT_GE(counted, witness->published.load());
  // A child may be killed before it tells the witness.
  EXPECT_LE(counted, witness->published.load() + kRounds + 6);
  const std::vector<RunProcess> all = processes();
  EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](const auto& one) { return one.live; }));
  const pid_t last = start([](RunSeat& seat) {
    seat.join("last");
    ::_exit(seat.share() == 1000 * kMiB ? 42 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(end(last)), 42);
  ::munmap(witness, sizeof(Witness));
}

}  // namespace
}  // namespace tiermem

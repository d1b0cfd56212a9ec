// Touches of registered memory as signals: the function that answers them runs in the touching
// thread, and what it does not want goes to the handler before. Closed traps are tested through
// the host's address space.
#include "os/touch_trap.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "os/userfault.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

using test::kAddressSanitizer;
using test::kThreadSanitizer;

struct RegisteredTrap : ::testing::Test {
  void SetUp() override {
    userfault = Userfault::open(UserfaultUse::signal);
    if (!userfault.ok()) {
      GTEST_SKIP() << userfault.facts().reason;
    }
    ASSERT_TRUE(userfault.facts().signals);
    auto made = TouchTrap::create(TouchTrap::Kind::registered);
    ASSERT_TRUE(made.ok()) << made.message();
    trap = std::move(*made);
    memory = static_cast<std::byte*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(userfault.register_missing(memory, kBytes, true), 0);
    ASSERT_TRUE(trap->add(memory, kBytes).ok());
  }
  ~RegisteredTrap() override {
    trap.reset();
    munmap(memory, kBytes);
  }
  // Fills the page with its number, and wakes its touchers.
  static bool fill(void* self, const UserfaultEvent& touch) {
    auto& its = *static_cast<RegisteredTrap*>(self);
    its.touches.fetch_add(1);
    its.writes.fetch_add(touch.write ? 1 : 0);
    its.watched.fetch_add(touch.watched ? 1 : 0);
    its.thread = touch.thread;
    std::byte* const page = its.memory + (touch.address - its.memory) / kPage * kPage;
    if (touch.watched) {
      (void)its.userfault.allow_writes(page, kPage);
    } else {
      alignas(4096) std::byte bytes[kPage];
      std::memset(bytes, static_cast<int>((page - its.memory) / kPage), kPage);
      (void)its.userfault.copy(page, bytes, kPage, its.watches);
    }
    its.trap->wake(page);
    return true;
  }
  static constexpr std::size_t kPage = 4096, kPages = 64, kBytes = kPages * kPage;
  Userfault userfault;
  std::unique_ptr<TouchTrap> trap;
  std::byte* memory = nullptr;
  bool watches = false;
  std::atomic<unsigned> touches{0}, writes{0}, watched{0}, thread{0};
};

TEST_F(RegisteredTrap, the_touching_thread_answers_and_goes_on) {
  trap->answer_by(&fill, this);
  volatile std::byte* const bytes = memory;
  EXPECT_EQ(static_cast<int>(bytes[5 * kPage + 17]), 5);
  EXPECT_EQ(thread, static_cast<unsigned>(syscall(SYS_gettid)));
  EXPECT_EQ(writes, 0u);
  bytes[6 * kPage] = std::byte{77};
  EXPECT_EQ(static_cast<int>(bytes[6 * kPage + 1]), 6);
  EXPECT_EQ(touches, 2u);
  EXPECT_EQ(writes, 1u);
  EXPECT_EQ(watched, 0u);
}

TEST_F(RegisteredTrap, the_first_write_to_a_watched_page_is_told_apart) {
  if (!userfault.facts().watch) {
    GTEST_SKIP() << "no write-protection";
  }
  watches = true;
  trap->answer_by(&fill, this);
  volatile std::byte* const bytes = memory;
  EXPECT_EQ(static_cast<int>(bytes[kPage]), 1);
  bytes[kPage] = std::byte{9};
  bytes[kPage] = std::byte{10};
  EXPECT_EQ(touches, 2u);
  EXPECT_EQ(watched, 1u);
  EXPECT_EQ(static_cast<int>(bytes[kPage]), 10);
}

// Others answer while it sleeps.
TEST_F(RegisteredTrap, a_thread_that_waits_is_woken) {
  trap->answer_by(
      [](void* self, const UserfaultEvent&) {
        ++static_cast<RegisteredTrap*>(self)->touches;
        return true;
      },
      this);
  std::atomic<unsigned> right{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const volatile std::byte* const bytes = memory;
      right += bytes[t / 2 * kPage] == static_cast<std::byte>(t / 2) ? 1 : 0;
    });
  }
  while (touches < 8) {
    std::this_thread::yield();
  }
  for (unsigned page = 0; page < 4; ++page) {
    alignas(4096) std::byte bytes[kPage];
    std::memset(bytes, static_cast<int>(page), kPage);
    EXPECT_EQ(userfault.copy(memory + page * kPage, bytes, kPage).error, 0);
    trap->wake(memory + page * kPage);
  }
  for (std::thread& each : threads) {
    each.join();
  }
  EXPECT_EQ(right, 8u);
}

TEST_F(RegisteredTrap, a_system_call_on_absent_bytes_fails) {
  trap->answer_by(&fill, this);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], memory, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(touches, 0u);
  close(ends[0]);
  close(ends[1]);
}

// Returns how a child with a trap of its own ends. It touches absent memory, and no answer comes.
// `ends`: its answers have ended before the touch. `before`: its handler of SIGBUS.
int end_of_child(bool ends, void (*before)(int)) {
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    action.sa_handler = before;
    alarm(20);
    const Userfault userfault = Userfault::open(UserfaultUse::signal);
    auto trap = TouchTrap::create(TouchTrap::Kind::registered);
    auto* const memory = static_cast<std::byte*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // The first trap of the process finds the handler.
    if (sigaction(SIGBUS, &action, nullptr) != 0 || userfault.register_missing(memory, 4096) != 0 ||
        !(*trap)->add(memory, 4096).ok()) {
      _exit(1);
    }
    (*trap)->answer_by([](void*, const UserfaultEvent&) { return false; }, nullptr);
    if (ends) {
      (*trap)->answer_by(nullptr, nullptr);
    }
    (void)*static_cast<volatile std::byte*>(memory);
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(RegisteredTrap, unanswered_touch_ends_the_process) {
  if (kAddressSanitizer || kThreadSanitizer) {
    GTEST_SKIP() << "a sanitizer reports the signal and exits";
  }
  for (const bool ends : {false, true}) {
    const int status = end_of_child(ends, SIG_DFL);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << ends << status;
  }
}

// It runs as without a trap: other signals are not blocked.
TEST(RegisteredTraps, unanswered_touch_goes_to_the_handler_before) {
  struct sigaction now {};
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &now), 0);
  if (now.sa_handler != SIG_DFL || !Userfault::open(UserfaultUse::signal).ok()) {
    GTEST_SKIP() << "there is a handler already, of a sanitizer or an earlier test";
  }
  const int status = end_of_child(false, [](int) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    _exit(sigismember(&blocked, SIGBUS) == 1 && sigismember(&blocked, SIGUSR1) == 0 ? 77 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77) << status;
}

}  // namespace
}  // namespace tiermem

// System calls on evicted memory with signals, threads and processes: calls in which libc waits,
// calls that handlers interrupt or leave, and started programs. Runs twice, like calls_test.cpp.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "preload/evicted.hpp"
#include "preload/words.hpp"

extern char** environ;

namespace tiermem::test {
namespace {

constexpr std::size_t kPage = 4096;

void on_signal(int number, void (*handler)(int), int flags = 0, bool all_blocked = false) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (all_blocked) {
    sigfillset(&action.sa_mask);
  }
  ASSERT_EQ(sigaction(number, &action, nullptr), 0);
}

bool wrapped() {
  return getenv("TIERMEM_WRAP_SYSCALLS") != nullptr;
}

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  int ends[2];
};

volatile unsigned char g_seen = 0;
Evicted* g_read_by_handler = nullptr;

void read_absent_memory(int) {
  for (std::size_t at = 0; at < g_read_by_handler->bytes(); at += 16 * kPage) {
    g_seen = static_cast<unsigned char>(g_read_by_handler->at()[at]);
  }
}

/// Runs `work` while a timer interrupts it by a handler that reads evicted memory, and advises.
template <typename Work>
void interrupt(Work work, void (*handler)(int)) {
  Evicted memory(4 * kMiB);
  memset(memory.at(), 1, memory.bytes());
  g_read_by_handler = &memory;
  on_signal(SIGALRM, handler);
  const itimerval often{{0, 1000}, {0, 1000}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  for (int round = 0; round < 60; ++round) {
    (void)madvise(memory.at(), memory.bytes(), MADV_PAGEOUT);
    work();
  }
  const itimerval never{};
  ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
  on_signal(SIGALRM, SIG_DFL);
}

// The movers stand still for a fork. A handler that touched absent memory then would wait for ever.
TEST(CallSignals, handler_touches_absent_memory_while_its_thread_forks) {
  interrupt(
      [] {
        const pid_t child = fork();
        if (child == 0) {
          _exit(7);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
      },
      read_absent_memory);
}

// The calls hold locks that the mover, or the handler's own call, would wait for.
TEST(CallSignals, handler_touches_and_changes_memory_while_its_thread_maps) {
  const auto map = [] {
    for (int i = 0; i < 20; ++i) {
      void* const at =
          mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(at, MAP_FAILED);
      ASSERT_EQ(mprotect(at, kMiB, PROT_READ), 0);
      ASSERT_EQ(munmap(at, 2 * kMiB), 0);
    }
  };
  interrupt(map, read_absent_memory);
  interrupt(map, [](int) {
    std::byte* const at = g_read_by_handler->at();
    (void)mprotect(at, kPage, PROT_READ);
    (void)mprotect(at, kPage, PROT_READ | PROT_WRITE);
  });
}

// The kernel keeps the mask of the interrupted code, and the call is made in a handler where it is
// wrapped.
TEST(CallSignals, mask_and_alternate_stack_in_evicted_memory_are_set) {
  Evicted memory(kMiB);
  auto* const sets = reinterpret_cast<sigset_t*>(memory.at());
  sigemptyset(&sets[0]);
  sigaddset(&sets[0], SIGUSR1);
  memory.evict();
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &sets[0], &sets[100]), 0);
  EXPECT_EQ(sigismember(&sets[100], SIGUSR1), 0);
  sigset_t now;
  ASSERT_EQ(sigprocmask(SIG_BLOCK, nullptr, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
  memory.evict();
  sigset_t* volatile same = &sets[0];
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &sets[0], same), 0);
  EXPECT_EQ(sigismember(&sets[0], SIGUSR1), 1);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, nullptr, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 0);

  static char stack[1 << 16];
  auto* const named = reinterpret_cast<stack_t*>(memory.at() + 64 * kPage);
  *named = {};
  named->ss_sp = stack;
  named->ss_size = sizeof stack;
  stack_t before{}, after{};
  memory.evict();
  ASSERT_EQ(sigaltstack(named, &before), 0);
  ASSERT_EQ(sigaltstack(&before, &after), 0);
  EXPECT_EQ(after.ss_sp, stack);
}

TEST(Locks, in_evicted_memory_hold_and_wake) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t turn = 0;
    std::uint64_t sum = 0;
  };
  constexpr int kThreads = 6;
  constexpr std::uint64_t kRounds = 300;
  Evicted memory(kMiB);
  auto* const shared = new (memory.at() + 10 * kPage) Shared;
  std::atomic<bool> stop{false};
  std::thread presses([&] {
    while (!stop) {
      madvise(memory.at(), memory.bytes(), MADV_PAGEOUT);
    }
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        std::unique_lock lock(shared->mutex);
        shared->changed.wait(
            lock, [&] { return shared->turn % kThreads == static_cast<std::uint64_t>(i); });
        ++shared->turn;
        shared->sum += shared->turn;
        shared->changed.notify_all();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  stop = true;
  presses.join();
  const std::uint64_t n = kThreads * kRounds;
  EXPECT_EQ(shared->sum, n * (n + 1) / 2);
  shared->~Shared();
}

TEST(Locks, time_out_in_evicted_memory) {
  Evicted memory(kMiB);
  auto* const mutex = new (memory.at() + kPage - sizeof(pthread_mutex_t)) pthread_mutex_t;
  auto* const cond = new (memory.at() + 20 * kPage) pthread_cond_t;
  auto* const until = reinterpret_cast<timespec*>(memory.at() + 40 * kPage);
  pthread_mutex_init(mutex, nullptr);
  pthread_cond_init(cond, nullptr);
  clock_gettime(CLOCK_REALTIME, until);
  until->tv_nsec += 1000;
  until->tv_sec += until->tv_nsec / 1000000000;
  until->tv_nsec %= 1000000000;
  pthread_mutex_lock(mutex);
  memory.evict();
  EXPECT_EQ(pthread_cond_timedwait(cond, mutex, until), ETIMEDOUT);
  std::thread other([&] {
    memory.evict();
    EXPECT_EQ(pthread_mutex_timedlock(mutex, until), ETIMEDOUT);
  });
  other.join();
  pthread_mutex_unlock(mutex);
}

thread_local sigjmp_buf t_jump;
std::atomic<int> g_handled{0};

TEST(Signals, interrupt_a_call_that_waits) {
  Evicted memory(kMiB);
  Pipe pipe;
  on_signal(SIGUSR1, [](int) { ++g_handled; });
  const pthread_t self = pthread_self();
  std::atomic<bool> returned{false};
  // Until the call has returned: the first signal may come before the call.
  const auto send = [&] {
    while (!returned) {
      usleep(20000);
      pthread_kill(self, SIGUSR1);
    }
  };
  g_handled = 0;
  memory.evict();
  std::thread other(send);
  EXPECT_EQ(read(pipe.ends[0], memory.at(), 100), -1);
  EXPECT_EQ(errno, EINTR);
  returned = true;
  other.join();
  EXPECT_GE(g_handled, 1);

  auto* const rest = reinterpret_cast<timespec*>(memory.at() + kPage - 8);
  *rest = {20, 0};
  memory.evict();
  returned = false;
  std::thread another(send);
  EXPECT_EQ(nanosleep(rest, rest), -1);
  EXPECT_EQ(errno, EINTR);
  returned = true;
  another.join();
  EXPECT_GE(rest->tv_sec, 10);
  EXPECT_LE(rest->tv_sec, 19);
}

Evicted* g_memory = nullptr;
int g_out = -1;

// A handler makes calls on evicted memory with all signals blocked, while its thread waits in such
// a call.
TEST(Signals, have_handlers_that_make_calls) {
  Evicted memory(kMiB);
  Evicted other(kMiB);
  Pipe in, out;
  g_memory = &other;
  g_out = out.ends[1];
  put_words(other.at(), 1000, 3);
  on_signal(
      SIGUSR1,
      [](int) {
        g_memory->evict();
        EXPECT_EQ(write(g_out, g_memory->at(), 1000), 1000);
        ++g_handled;
      },
      SA_RESTART, true);
  g_handled = 0;
  const pthread_t self = pthread_self();
  std::thread helper([&] {
    for (int i = 1; i <= 5; ++i) {
      usleep(10000);
      pthread_kill(self, SIGUSR1);
      while (g_handled < i) {
        usleep(1000);
      }
    }
    EXPECT_EQ(write(in.ends[1], "12345678", 8), 8);
  });
  memory.evict();
  ASSERT_EQ(read(in.ends[0], memory.at() + 4, 100), 8) << strerror(errno);
  EXPECT_EQ(memcmp(memory.at() + 4, "12345678", 8), 0);
  helper.join();
  for (int i = 0; i < 5; ++i) {
    std::uint64_t got[125];
    ASSERT_EQ(read(out.ends[0], got, sizeof(got)), 1000);
    EXPECT_EQ(wrong_words(got, sizeof(got), 3), 0u);
  }
}

TEST(Signals, that_are_all_blocked_let_calls_through) {
  Evicted memory(kMiB);
  Pipe pipe;
  std::thread other([&] {
    sigset_t all, before;
    sigfillset(&all);
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
    put_words(memory.at(), 4096, 5);
    memory.evict();
    EXPECT_EQ(write(pipe.ends[1], memory.at(), 4096), 4096);
    memset(memory.at(), 0, 4096);
    memory.evict();
    EXPECT_EQ(read(pipe.ends[0], memory.at(), 4096), 4096);
    EXPECT_EQ(wrong_words(memory.at(), 4096, 5), 0u);
    ASSERT_EQ(sigprocmask(SIG_SETMASK, &before, nullptr), 0);
  });
  other.join();
}

[[gnu::noinline]] void read_until_the_alarm(int fd, const Evicted& memory) {
  if (sigsetjmp(t_jump, 1) == 0) {
    const itimerval soon{{0, 0}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    for (;;) {  // The signal may arrive before the call.
      (void)!read(fd, memory.at(), memory.bytes());
    }
  }
}

TEST(Signals, whose_handlers_jump_out_of_calls_leave_nothing_behind) {
  Evicted memory(4 * kMiB);
  Pipe pipe;
  on_signal(SIGALRM, [](int) { siglongjmp(t_jump, 1); });
  std::size_t before = 0;
  for (int i = 0; i < 300; ++i) {
    madvise(memory.at(), memory.bytes(), MADV_PAGEOUT);
    read_until_the_alarm(pipe.ends[0], memory);
    before = i == 50 ? resident_bytes() : before;
  }
  EXPECT_LE(resident_bytes(), before + 8 * kMiB);
  put_words(memory.at(), 4096, 6);
  memory.evict();
  ASSERT_EQ(write(pipe.ends[1], memory.at(), 4096), 4096);
  ASSERT_EQ(read(pipe.ends[0], memory.at() + kMiB, 4096), 4096);
  EXPECT_EQ(wrong_words(memory.at() + kMiB, 4096, 6), 0u);
}

TEST(Signals, may_run_on_a_stack_in_tiered_memory) {
  constexpr std::size_t kStack = 64 * kPage;
  Evicted memory(kMiB);
  const stack_t stack{memory.at() + 10 * kPage, 0, kStack};
  stack_t before{};
  ASSERT_EQ(sigaltstack(&stack, &before), 0);
  on_signal(
      SIGUSR2, [](int) { ++g_handled; }, SA_ONSTACK);
  g_handled = 0;
  for (int i = 0; i < 20; ++i) {
    madvise(memory.at(), memory.bytes(), MADV_PAGEOUT);
    raise(SIGUSR2);
  }
  EXPECT_EQ(g_handled, 20);
  const stack_t none{nullptr, SS_DISABLE, 0};
  ASSERT_EQ(sigaltstack(before.ss_sp != nullptr ? &before : &none, nullptr), 0);
  memory.evict();
}

// SIGSYS belongs to the program, although tiermem uses it too.
TEST(Signals, of_bad_system_calls_are_the_programs) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGSYS, nullptr, &before), 0);
  EXPECT_EQ(before.sa_handler, SIG_DFL);
  g_handled = 0;
  on_signal(SIGSYS, [](int) { ++g_handled; });
  raise(SIGSYS);
  EXPECT_EQ(g_handled, 1);
  Evicted memory(kMiB);
  Pipe pipe;
  memory.evict();
  EXPECT_EQ(write(pipe.ends[1], memory.at(), 10), 10);
  EXPECT_EQ(g_handled, 1);
  ASSERT_EQ(sigaction(SIGSYS, &before, nullptr), 0);
}

TEST(Threads, are_cancelled_in_calls_on_evicted_memory) {
  Evicted memory(kMiB);
  Pipe pipe;
  struct Shared {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  };
  auto* const shared = new (memory.at() + kMiB / 2) Shared;
  for (const bool waits : {false, true}) {
    std::atomic<bool> ready{false};
    struct Work {
      Shared* shared;
      std::byte* at;
      int fd;
      bool waits;
      std::atomic<bool>* ready;
    } work{shared, memory.at(), pipe.ends[0], waits, &ready};
    pthread_t thread{};
    memory.evict();
    ASSERT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void* argument) -> void* {
                    const Work& mine = *static_cast<Work*>(argument);
                    *mine.ready = true;
                    if (mine.waits) {
                      pthread_mutex_lock(&mine.shared->mutex);
                      pthread_cond_wait(&mine.shared->cond, &mine.shared->mutex);
                    } else {
                      (void)!read(mine.fd, mine.at, 100);
                    }
                    return nullptr;
                  },
                  &work),
              0);
    while (!ready) {
      usleep(1000);
    }
    usleep(30000);
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
  }
}

int exit_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The arguments, their list and the path are evicted when the kernel reads them.
TEST(Programs, are_started_with_evicted_words) {
  Evicted memory(kMiB);
  char* const text = reinterpret_cast<char*>(memory.at());
  const auto at = [&](std::size_t page, const char* word) {
    return strcpy(text + page * kPage - 3, word);
  };
  auto** const words = reinterpret_cast<char**>(memory.at() + 200 * kPage);
  char* const path = at(20, "/bin/sh");
  words[0] = at(40, "sh");
  words[1] = at(60, "-c");
  words[2] = at(80, "test \"$WORD\" = \"of its own\" && exit 42");
  words[3] = nullptr;
  words[4] = at(100, "WORD=of its own");
  words[5] = nullptr;
  for (const int way : {0, 1, 2, 3}) {
    memory.evict();
    pid_t child = -1;
    switch (way) {
      case 0:
        child = fork();
        if (child == 0) {
          execve(path, words, words + 4);
          _exit(1);
        }
        break;
      case 1:
        child = vfork();
        if (child == 0) {
          execve(path, words, words + 4);
          _exit(1);
        }
        break;
      case 2:
        ASSERT_EQ(posix_spawn(&child, path, nullptr, nullptr, words, words + 4), 0);
        break;
      default:
        child = vfork();
        if (child == 0) {
          syscall(SYS_execve, path, words, words + 4);
          _exit(1);
        }
    }
    EXPECT_EQ(exit_of(child), 42) << way;
  }
  char* const command = at(120, "exit 43");
  memory.evict();
  EXPECT_EQ(WEXITSTATUS(system(command)), 43);
  memory.evict();
  FILE* const stream = popen(command, "r");
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(WEXITSTATUS(pclose(stream)), 43);
}

// libc blocks all signals in the child, and makes its calls there with the paths of the actions and
// with the attributes.
TEST(Programs, are_started_with_file_actions_and_attributes_in_tiered_memory) {
  Evicted memory(kMiB);
  auto* const actions = reinterpret_cast<posix_spawn_file_actions_t*>(memory.at());
  auto* const attributes = reinterpret_cast<posix_spawnattr_t*>(memory.at() + 10 * kPage - 8);
  char file[] = "/tmp/tiermem_spawn_XXXXXX";
  const int fd = mkstemp(file);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(posix_spawn_file_actions_init(actions), 0);
  // Many, so that copies of the path come from tiered memory if they are made there.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(posix_spawn_file_actions_addopen(actions, 1, file, O_WRONLY, 0), 0);
  }
  ASSERT_EQ(posix_spawn_file_actions_addchdir_np(actions, "/usr"), 0);
  ASSERT_EQ(posix_spawnattr_init(attributes), 0);
  sigset_t mask, defaults;
  ASSERT_EQ(sigemptyset(&mask), 0);
  ASSERT_EQ(sigaddset(&mask, SIGUSR1), 0);
  ASSERT_EQ(sigemptyset(&defaults), 0);
  ASSERT_EQ(sigaddset(&defaults, SIGUSR2), 0);
  ASSERT_EQ(posix_spawnattr_setsigmask(attributes, &mask), 0);
  ASSERT_EQ(posix_spawnattr_setsigdefault(attributes, &defaults), 0);
  const sched_param normal{};
  ASSERT_EQ(posix_spawnattr_setschedparam(attributes, &normal), 0);
  ASSERT_EQ(posix_spawnattr_setschedpolicy(attributes, SCHED_OTHER), 0);
  ASSERT_EQ(posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                     POSIX_SPAWN_SETSCHEDULER),
            0);
  for (const bool finds : {false, true}) {
    memory.evict();
    pid_t child = -1;
    char* words[] = {strdup("grep"), strdup("SigBlk"), strdup("../proc/self/status"), nullptr};
    const char* const path = finds ? "grep" : "/bin/grep";
    ASSERT_EQ(
        (finds ? posix_spawnp : posix_spawn)(&child, path, actions, attributes, words, environ), 0);
    EXPECT_EQ(exit_of(child), 0) << finds;
    char said[200] = {};
    EXPECT_GT(pread(fd, said, sizeof(said) - 1, 0), 0);
    EXPECT_STREQ(said, "SigBlk:\t0000000000000200\n");
    EXPECT_EQ(ftruncate(fd, 0), 0);
    for (char* const word : words) {
      free(word);
    }
  }
  EXPECT_EQ(posix_spawn_file_actions_destroy(actions), 0);
  EXPECT_EQ(posix_spawnattr_destroy(attributes), 0);
  close(fd);
  unlink(file);
}

// They may add up to gigabytes, so they are tiered.
TEST(Strings, are_copied_for_the_program_into_tiered_memory) {
  const std::string text(3000, 'x');
  const std::wstring wide(700, L'y');
  std::vector<void*> copies;
  std::size_t plain = 0;
  for (int i = 0; i < 200; ++i) {
    char* const all = strdup(text.c_str());
    char* const some = strndup(text.c_str(), 2000);
    wchar_t* const wide_all = wcsdup(wide.c_str());
    ASSERT_EQ(text, all);
    ASSERT_EQ(text.substr(0, 2000), some);
    ASSERT_EQ(wide, wide_all);
    for (void* const copy :
         {static_cast<void*>(all), static_cast<void*>(some), static_cast<void*>(wide_all)}) {
      copies.push_back(copy);
      // Where all tiered memory is if calls are wrapped.
      plain += reinterpret_cast<std::uintptr_t>(copy) >> 43 == 3 ? 0 : 1;
    }
  }
  if (wrapped()) {
    EXPECT_LT(plain, copies.size() / 2) << "the first blocks of a process are plain";
  }
  for (void* const copy : copies) {
    free(copy);
  }
  char* const empty = strndup("", 5);
  EXPECT_STREQ(empty, "");
  free(empty);
}

TEST(Programs, that_are_started_know_nothing_of_the_filter) {
  Evicted memory(kMiB);
  memory.evict();
  // Without tiermem; the programs use vectors and other calls.
  EXPECT_EQ(WEXITSTATUS(system("env -u LD_PRELOAD sh -c 'ls -l /proc/self | sort | wc -l "
                               ">/dev/null' && exit 3")),
            3);
  EXPECT_EQ(WEXITSTATUS(system("ls -l /proc/self | sort | wc -l >/dev/null && exit 4")), 4);
}

TEST(Programs, get_no_rings_where_calls_are_wrapped) {
  if (!wrapped()) {
    GTEST_SKIP() << "calls are not wrapped";
  }
  char parameters[256]{};
  EXPECT_EQ(syscall(SYS_io_uring_setup, 4, parameters), -1);
  EXPECT_EQ(errno, ENOSYS);
  unsigned long context = 0;
  EXPECT_EQ(syscall(SYS_io_setup, 4, &context), -1);
  EXPECT_EQ(errno, ENOSYS);
}

TEST(Programs, that_share_memory_by_vfork_make_calls) {
  Evicted memory(kMiB);
  Pipe pipe;
  put_words(memory.at(), 4096, 7);
  memory.evict();
  const pid_t child = vfork();
  if (child == 0) {
    _exit(write(pipe.ends[1], memory.at(), 4096) == 4096 ? 0 : 1);
  }
  EXPECT_EQ(exit_of(child), 0);
  memory.evict();
  ASSERT_EQ(read(pipe.ends[0], memory.at() + 8 * kPage, 4096), 4096);
  EXPECT_EQ(wrong_words(memory.at() + 8 * kPage, 4096, 7), 0u);
}

TEST(Programs, copied_by_fork_make_calls) {
  Evicted memory(kMiB);
  Pipe pipe;
  put_words(memory.at(), 4096, 8);
  memory.evict();
  const pid_t child = fork();
  if (child == 0) {
    memory.evict();
    _exit(write(pipe.ends[1], memory.at(), 4096) == 4096 ? 0 : 1);
  }
  EXPECT_EQ(exit_of(child), 0);
  memory.evict();
  ASSERT_EQ(read(pipe.ends[0], memory.at() + 8 * kPage, 4096), 4096);
  EXPECT_EQ(wrong_words(memory.at() + 8 * kPage, 4096, 8), 0u);
}

// The maximum number of pieces that the kernel accepts, and one more.
TEST(Programs, read_each_other_in_the_most_pieces) {
  constexpr std::size_t kPiece = 1024;
  Evicted memory(IOV_MAX * kPiece), other(IOV_MAX * kPiece);
  put_words(memory.at(), memory.bytes(), 9);
  memory.evict();
  other.evict();
  std::vector<iovec> here, there;
  for (std::size_t i = 0; i <= IOV_MAX; ++i) {
    here.push_back({other.at() + i % IOV_MAX * kPiece, kPiece});
    there.push_back({memory.at() + i % IOV_MAX * kPiece, kPiece});
  }
  EXPECT_EQ(process_vm_readv(getpid(), here.data(), IOV_MAX, there.data(), IOV_MAX, 0),
            static_cast<ssize_t>(IOV_MAX * kPiece));
  EXPECT_EQ(wrong_words(other.at(), IOV_MAX * kPiece, 9), 0u);
  memory.evict();
  EXPECT_EQ(process_vm_readv(getpid(), here.data(), IOV_MAX + 1, there.data(), IOV_MAX, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(process_vm_writev(getpid(), here.data(), IOV_MAX, there.data(), IOV_MAX + 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Programs, read_each_other_through_the_kernel) {
  Evicted memory(kMiB), other(kMiB);
  put_words(memory.at(), memory.bytes(), 9);
  memory.evict();
  other.evict();
  const iovec here{other.at(), other.bytes()}, there{memory.at(), memory.bytes()};
  EXPECT_EQ(process_vm_readv(getpid(), &here, 1, &there, 1, 0),
            static_cast<ssize_t>(memory.bytes()));
  EXPECT_EQ(wrong_words(other.at(), other.bytes(), 9), 0u);
  put_words(other.at(), other.bytes(), 10);
  memory.evict();
  other.evict();
  EXPECT_EQ(process_vm_writev(getpid(), &here, 1, &there, 1, 0),
            static_cast<ssize_t>(memory.bytes()));
  EXPECT_EQ(wrong_words(memory.at(), memory.bytes(), 10), 0u);
}

}  // namespace
}  // namespace tiermem::test

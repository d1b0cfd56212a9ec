// Processes that a tiered program creates: after the fork each sees its own bytes, wherever they
// are.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "preload/words.hpp"
#include "support/interruptions.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kBytes = 2 * kBudget;

/// Blocks of all classes with twice as many bytes as memory.
class Blocks {
 public:
  Blocks() {
    std::size_t total = 0;
    while (total < kBytes) {
      for (const std::size_t bytes : {std::size_t{256}, std::size_t{8192}, kMiB, 20 * kMiB}) {
        const std::size_t count = 2 * kMiB / bytes + 1;
        for (std::size_t i = 0; i < count; ++i) {
          blocks_.push_back({malloc(bytes), bytes});
        }
        total += count * bytes;
      }
    }
  }
  ~Blocks() {
    for (const auto& [data, bytes] : blocks_) {
      free(data);
    }
  }
  void write(std::uint64_t seed) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      put_words(blocks_[i].first, blocks_[i].second, seed + i);
    }
  }
  std::uint64_t wrong(std::uint64_t seed) const {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      wrong += wrong_words(blocks_[i].first, blocks_[i].second, seed + i);
    }
    return wrong;
  }

 private:
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

int exit_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/// Returns the exit status of a child that might wait for ever before it runs its own code. The
/// child is killed after a minute.
int exit_in_time(pid_t child) {
  int status = 0;
  for (int i = 0; i < 6000; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    }
    usleep(10000);
  }
  kill(child, SIGKILL);
  return exit_of(child);
}

TEST(Fork, parent_and_child_have_bytes_of_their_own) {
  Blocks blocks;
  blocks.write(1);
  const pid_t child = fork();
  if (child == 0) {
    const bool as_it_was = blocks.wrong(1) == 0;
    blocks.write(2);
    _exit(!as_it_was ? 1 : blocks.wrong(2) != 0 ? 2 : 0);
  }
  blocks.write(3);
  EXPECT_EQ(blocks.wrong(3), 0u);
  EXPECT_EQ(exit_of(child), 0);
  EXPECT_EQ(blocks.wrong(3), 0u);
}

TEST(Fork, the_parent_may_end_first) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto* const blocks = new Blocks;
    blocks->write(1);
    if (fork() == 0) {
      usleep(200000);  // The parent has ended.
      const char answer = getppid() == 1 || blocks->wrong(1) == 0 ? 'y' : 'n';
      const char right = blocks->wrong(1) == 0 ? answer : 'n';
      (void)!write(ends[1], &right, 1);
      _exit(0);
    }
    raise(SIGKILL);
  }
  close(ends[1]);
  EXPECT_EQ(exit_of(parent), 1000 + SIGKILL);
  char answer = '?';
  EXPECT_EQ(read(ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  close(ends[0]);
}

TEST(Fork, children_of_children) {
  Blocks blocks;
  blocks.write(1);
  const pid_t child = fork();
  if (child == 0) {
    blocks.write(2);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      _exit(blocks.wrong(2) == 0 ? 0 : 1);
    }
    blocks.write(4);
    const int theirs = exit_of(grandchild);
    _exit(theirs != 0 ? 10 : blocks.wrong(4) != 0 ? 2 : 0);
  }
  EXPECT_EQ(exit_of(child), 0);
  EXPECT_EQ(blocks.wrong(1), 0u);
}

TEST(Fork, while_threads_write) {
  Blocks blocks;
  blocks.write(1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::uint64_t*> counters;
  for (int t = 0; t < 3; ++t) {
    counters.push_back(static_cast<std::uint64_t*>(calloc(kMiB, 8)));
    threads.emplace_back([&, counter = counters.back()] {
      for (std::uint64_t round = 1; !stop; ++round) {
        for (std::size_t i = 0; i < kMiB; i += 128) {
          counter[i] = round;
        }
        free(malloc(100000));
      }
    });
  }
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      bool even = true;  // A writer is at one word at a time, so at most two rounds are visible.
      for (const std::uint64_t* counter : counters) {
        for (std::size_t i = 128; i < kMiB; i += 128) {
          even = even && counter[i] <= counter[i - 128] && counter[i] + 1 >= counter[i - 128];
        }
      }
      free(malloc(1000));
      _exit(even && blocks.wrong(1) == 0 ? 0 : 1);
    }
    EXPECT_EQ(exit_of(child), 0);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::uint64_t* counter : counters) {
    free(counter);
  }
  EXPECT_EQ(blocks.wrong(1), 0u);
}

// Both are changed during a fork.
TEST(Fork, leaves_blocked_signals_and_cancellation_as_they_were) {
  const Blocks blocks;
  const MayInterrupt before = MayInterrupt::now();
  const pid_t child = fork();
  if (child == 0) {
    _exit(MayInterrupt::now() == before ? 0 : 1);
  }
  EXPECT_EQ(exit_of(child), 0);
  EXPECT_TRUE(MayInterrupt::now() == before);
}

// The child allocates as well, in sizes for which the heap takes new memory. The locks of threads
// that were allocating do not exist there.
TEST(Fork, while_threads_allocate_then_the_child_allocates) {
  std::atomic<bool> stop{false};
  const auto allocate = [](std::size_t round) {
    for (std::size_t i = 0; i < 50; ++i) {
      const std::size_t bytes = (round * 7919 + i * 104729) % 400'000;
      auto* const block = static_cast<char*>(malloc(bytes + 1));
      block[bytes] = 1;
      free(block);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t round = 0; !stop; ++round) {
        allocate(round);
      }
    });
  }
  for (std::size_t round = 0; round < 40; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      allocate(round + 1);
      _exit(0);
    }
    EXPECT_EQ(exit_of(child), 0) << round;
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// Returns the address of the calling thread's table of thread-local storage.
void* thread_table() {
#if defined(__x86_64__)
  return static_cast<void**>(__builtin_thread_pointer())[1];
#else
  return static_cast<void**>(__builtin_thread_pointer())[0];
#endif
}

// The child's first threads are tiermem's own. They reuse the stacks of threads that do not exist
// in the child, with their tables of thread-local storage. At that time no thread can serve a
// fault.
TEST(Fork, while_threads_wait) {
  constexpr std::uintptr_t kPage = 4096;
  Blocks blocks;
  blocks.write(1);
  std::atomic<unsigned> waiting{0};
  std::atomic<bool> stop{false};
  std::vector<void*> tables(4);
  std::vector<std::thread> threads;
  for (void*& table : tables) {
    threads.emplace_back([&] {
      table = thread_table();
      ++waiting;
      stop.wait(false);
    });
  }
  while (waiting != tables.size()) {
    usleep(1000);
  }
  for (void* const table : tables) {
    const auto page = reinterpret_cast<std::uintptr_t>(table) / kPage * kPage;
    EXPECT_EQ(madvise(reinterpret_cast<void*>(page), kPage, MADV_PAGEOUT), 0) << strerror(errno);
  }
  const pid_t child = fork();
  if (child == 0) {
    std::thread([&] { blocks.write(2); }).join();
    _exit(blocks.wrong(2) == 0 ? 0 : 1);
  }
  EXPECT_EQ(exit_in_time(child), 0);
  stop = true;
  stop.notify_all();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(blocks.wrong(1), 0u);
}

TEST(Fork, streams_of_the_parent_work_in_the_child) {
  char name[] = "/tmp/tiermem-stream-XXXXXX";
  const int fd = mkstemp(name);
  std::FILE* const stream = fdopen(fd, "w+");
  ASSERT_NE(stream, nullptr);
  std::fputs("before ", stream);
  std::fflush(stream);
  Blocks blocks;
  blocks.write(1);  // Evicts everything that can leave.
  const pid_t child = fork();
  if (child == 0) {
    const bool wrote = std::fputs("and after", stream) >= 0 && std::fclose(stream) == 0;
    std::FILE* const other = std::fopen("/dev/null", "w");
    _exit(wrote && other != nullptr ? 0 : 1);
  }
  EXPECT_EQ(exit_of(child), 0);
  std::rewind(stream);
  char text[64] = {};
  EXPECT_NE(std::fgets(text, sizeof(text), stream), nullptr);
  EXPECT_STREQ(text, "before and after");
  std::fclose(stream);
  unlink(name);
}

TEST(Fork, system_and_popen_run_programs) {
  Blocks blocks;
  blocks.write(1);
  EXPECT_EQ(system("exit 7"), 7 << 8);
  std::FILE* const pipe = popen("echo $((6 * 7))", "r");
  ASSERT_NE(pipe, nullptr);
  char text[16] = {};
  EXPECT_NE(std::fgets(text, sizeof(text), pipe), nullptr);
  EXPECT_STREQ(text, "42\n");
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(blocks.wrong(1), 0u);
}

TEST(Fork, a_daemon_closes_everything_and_goes_on) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto* const blocks = new Blocks;
    blocks->write(1);
    if (daemon(0, 0) != 0) {
      _exit(1);
    }
    for (int fd = 3; fd < 4096; ++fd) {
      if (fd != ends[1]) {
        close(fd);
      }
    }
    const bool first = blocks->wrong(1) == 0;
    blocks->write(2);
    const char answer = first && blocks->wrong(2) == 0 ? 'y' : 'n';
    (void)!write(ends[1], &answer, 1);
    _exit(0);
  }
  close(ends[1]);
  EXPECT_EQ(exit_of(child), 0);
  char answer = '?';
  EXPECT_EQ(read(ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  close(ends[0]);
}

TEST(Fork, without_handlers_by_clone_and_Fork) {
  Blocks blocks;
  blocks.write(1);
  std::vector<char> stack(kMiB);
  const int cloned =
      clone([](void* what) { return static_cast<Blocks*>(what)->wrong(1) == 0 ? 0 : 1; },
            stack.data() + stack.size(), SIGCHLD, &blocks);
  ASSERT_GT(cloned, 0) << strerror(errno);
  blocks.write(2);
  EXPECT_EQ(exit_of(cloned), 0);
  const pid_t child = _Fork();
  if (child == 0) {
    _exit(blocks.wrong(2) == 0 ? 0 : 1);
  }
  blocks.write(3);
  EXPECT_EQ(exit_of(child), 0);
  EXPECT_EQ(blocks.wrong(3), 0u);
}

TEST(Fork, a_child_that_shares_memory_touches_what_is_absent) {
  Blocks blocks;
  blocks.write(1);
  static Blocks* shared = nullptr;
  shared = &blocks;
  const pid_t child = vfork();
  if (child == 0) {
    _exit(shared->wrong(1) == 0 ? 0 : 1);
  }
  EXPECT_EQ(exit_of(child), 0);
}

}  // namespace
}  // namespace tiermem::test

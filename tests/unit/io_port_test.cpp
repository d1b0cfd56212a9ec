// Both real ports on real files, with and without the block tier above them: bytes, wake-ups,
// deadlines and refusals. Destroying a port waits for its requests.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "block_fixture.hpp"
#include "in_child.hpp"
#include "os/waitable_io_port.hpp"
#include "support/answered_calls.hpp"
#include "support/sanitizers.hpp"
#include "tier/block.hpp"

namespace tiermem {
namespace {

using test::answer_calls;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

std::vector<std::unique_ptr<BlockFile>> files(std::size_t count, std::uint64_t limit,
                                              const std::string& directory = ::testing::TempDir()) {
  std::vector<std::unique_ptr<BlockFile>> result;
  for (std::size_t i = 0; i < count; ++i) {
    BlockFileOptions options;
    options.path = directory;
    options.limit = limit;
    auto file = BlockFile::open(options);
    EXPECT_TRUE(file.ok()) << file.message();
    if (file.ok()) {
      result.push_back(std::move(*file));
    }
  }
  return result;
}

IoRequest request(std::uint64_t cookie, bool write, std::byte* data, std::uint64_t offset,
                  std::uint64_t length, bool buffered = false) {
  IoRequest result;
  result.cookie = cookie;
  result.write = write;
  result.buffered = buffered;
  result.data = data;
  result.offset = offset;
  result.length = static_cast<std::uint32_t>(length);
  return result;
}

class Port : public ::testing::TestWithParam<Engine> {
 protected:
  std::unique_ptr<WaitableIoPort> make(std::vector<std::unique_ptr<BlockFile>> devices,
                                       unsigned depth = 16) {
    PortOptions options;
    options.engine = GetParam();
    options.require = GetParam() == Engine::io_uring;
    options.depth = depth;
    return make_io_port(std::move(devices), options, reason_);
  }
  std::string reason_;
};

#define MAKE_OR_SKIP(port, ...)  \
  auto port = make(__VA_ARGS__); \
  if ((port) == nullptr) {       \
    GTEST_SKIP() << reason_;     \
  }

/// Steps the tier as its thread does: reaps, and sleeps if there was no completion.
SlotCompletion wait_one(BlockTier& tier, WaitableIoPort& port) {
  SlotCompletion completion;
  while (tier.reap({&completion, 1}) == 0) {
    port.wait(-1);
  }
  return completion;
}

void write_and_read_slots(WaitableIoPort& port, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  BlockOptions options;
  options.piece_bytes = 64 * kKiB;
  BlockTier tier(port, options);
  struct Slot {
    SlotId id;
    std::uint64_t length = 0;
  };
  std::vector<Slot> slots(count);
  for (const bool write : {true, false}) {
    std::vector<Bytes> memory(tier.depth());
    std::vector<std::size_t> free_memory;
    std::vector<std::size_t> memory_of(count);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = pattern(256 * kKiB, 0);
      free_memory.push_back(i);
    }
    const auto finish_one = [&] {
      const SlotCompletion done = wait_one(tier, port);
      ASSERT_EQ(done.code, Code::ok) << strerror(done.native);
      const std::size_t i = done.cookie;
      if (!write) {
        const Bytes expected = pattern(slots[i].length, i + 1);
        ASSERT_EQ(std::memcmp(memory[memory_of[i]].get(), expected.get(), slots[i].length), 0);
      }
      free_memory.push_back(memory_of[i]);
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (write) {
        const std::uint64_t bytes = (4 * kKiB) << (random() % 7);
        Result<SlotId> slot = tier.allocate(bytes, 0);
        while (slot.code() == Code::busy) {
          ASSERT_TRUE(tier.grow(bytes).ok());
          slot = tier.allocate(bytes, 0);
        }
        ASSERT_TRUE(slot.ok()) << slot.message();
        slots[i] = {*slot, 1 + random() % bytes};
      }
      if (free_memory.empty()) {
        ASSERT_NO_FATAL_FAILURE(finish_one());
      }
      memory_of[i] = free_memory.back();
      free_memory.pop_back();
      std::byte* data = memory[memory_of[i]].get();
      if (write) {
        std::memcpy(data, pattern(slots[i].length, i + 1).get(), slots[i].length);
      }
      tier.submit({i, slots[i].id, write, data, slots[i].length});
    }
    while (free_memory.size() < memory.size()) {
      ASSERT_NO_FATAL_FAILURE(finish_one());
    }
    const Status status = tier.check_invariants();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(tier.counters(0).errors, 0U);
  EXPECT_GT(tier.counters(0).bytes_read, 0U);
}

TEST_P(Port, a_thousand_random_slots_come_back_with_their_bytes) {
  MAKE_OR_SKIP(port, files(2, 96 * kMiB));
  write_and_read_slots(*port, 1000, 42);
}

TEST_P(Port, buffered_devices_work_as_direct_ones) {
  auto devices = files(2, 32 * kMiB, "/dev/shm");
  if (devices.size() != 2 || devices[0]->facts().direct) {
    GTEST_SKIP() << "/dev/shm is not a file system in memory";
  }
  MAKE_OR_SKIP(port, std::move(devices));
  EXPECT_FALSE(port->facts(0).direct);
  write_and_read_slots(*port, 200, 43);
}

TEST_P(Port, misaligned_requests_go_through_the_page_cache_to_the_same_file) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  ASSERT_TRUE(port->grow(0, kMiB).ok());
  const Bytes data = pattern(8 * kKiB, 4);
  const Bytes back = pattern(8 * kKiB, 0);
  const auto run = [&](const IoRequest& wanted) {
    EXPECT_TRUE(port->submit(wanted));
    IoCompletion completion;
    port->flush();
    while (port->reap({&completion, 1}) == 0) {
      port->wait(-1);
    }
    EXPECT_EQ(completion.cookie, wanted.cookie);
    return completion.result;
  };
  EXPECT_EQ(run(request(1, true, data.get() + 1, 4096 + 3, 1000, true)), 1000);
  EXPECT_EQ(run(request(2, false, back.get(), 4096, 4096)), 4096);
  EXPECT_EQ(std::memcmp(back.get() + 3, data.get() + 1, 1000), 0);
  EXPECT_EQ(run(request(3, false, back.get(), kMiB, 512, true)), 0) << "the end of the file";
}

TEST_P(Port, a_file_that_is_no_device_is_read_by_its_descriptor) {
  MAKE_OR_SKIP(port, {});
  const auto other = files(1, kMiB);
  ASSERT_TRUE(other[0]->grow(64 * kKiB).ok());
  const Bytes data = pattern(64 * kKiB, 9);
  ASSERT_EQ(::pwrite(other[0]->fd(true), data.get(), 64 * kKiB, 0), 64 * 1024);
  const Bytes back = pattern(64 * kKiB, 0);
  for (const bool buffered : {true, false}) {
    IoRequest read = request(5, false, back.get(), 0, 64 * kKiB, buffered);
    read.fd = other[0]->fd(buffered);
    ASSERT_TRUE(port->submit(read));
    IoCompletion completion;
    while (port->reap({&completion, 1}) == 0) {
      port->wait(-1);
    }
    EXPECT_EQ(completion.result, 64 * 1024);
    EXPECT_EQ(std::memcmp(back.get(), data.get(), 64 * kKiB), 0);
    std::memset(back.get(), 0, 64 * kKiB);
  }
}

TEST_P(Port, a_full_queue_says_so_and_loses_nothing) {
  MAKE_OR_SKIP(port, files(1, kMiB), 4);
  ASSERT_TRUE(port->grow(0, kMiB).ok());
  const Bytes data = pattern(64 * kKiB, 4);
  std::uint64_t submitted = 0;
  std::uint64_t sum = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t reaped = 0; reaped < 100;) {
    while (submitted < 100 && port->submit(request(submitted, true, data.get(), 0, 4096))) {
      ++submitted;
    }
    refused += submitted < 100 ? 1 : 0;
    ASSERT_LE(submitted - reaped, 8U) << "one device, and files read by descriptor";
    port->wait(-1);
    IoCompletion completions[3];
    const std::size_t n = port->reap(completions);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(completions[i].result, 4096);
      sum += completions[i].cookie;
    }
    reaped += n;
  }
  EXPECT_EQ(sum, 99U * 100 / 2);
  EXPECT_GT(refused, 0U);
}

TEST_P(Port, requests_of_each_file_and_of_files_read_by_descriptor_have_room) {
  constexpr unsigned kDepth = 4;
  for (const std::size_t count : {3, 1, 0}) {
    MAKE_OR_SKIP(port, files(count, kMiB), kDepth);
    const auto other = files(1, kMiB);
    ASSERT_TRUE(other[0]->grow(kMiB).ok());
    // Each read has its own memory, because several threads may read at once.
    const Bytes data = pattern(100 * 4096, 0);
    std::size_t accepted = 0;
    for (;; ++accepted) {
      IoRequest read = request(accepted, false, data.get() + accepted * 4096, 0, 4096, true);
      read.fd = other[0]->fd(true);
      if (!port->submit(read)) {
        break;
      }
      ASSERT_LT(accepted, 99U);
    }
    EXPECT_EQ(accepted, kDepth * (count + 1));
    for (std::size_t reaped = 0; reaped < accepted;) {
      port->wait(-1);
      std::array<IoCompletion, 3> completions;
      reaped += port->reap(completions);
    }
  }
}

TEST_P(Port, a_wait_ends_at_its_deadline_and_uses_no_cpu) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  const std::int64_t begin = now_ns();
  const std::int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  const std::int64_t deadline = begin + kSecond / 5;
  int waits = 0;
  while (now_ns() < deadline) {
    port->wait(deadline);
    ++waits;
  }
  EXPECT_LE(waits, 3);
  EXPECT_LT(now_ns() - deadline, 5 * kSecond);
  EXPECT_LT(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu, kSecond / 20);
  port->wait(begin);  // This time is in the past, so the call returns at once.
}

TEST_P(Port, a_wake_before_the_wait_is_kept_and_a_burst_counts_once) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  port->wake();
  port->wake();
  port->wait(-1);  // Hangs if the wake-up was lost.
  const std::int64_t begin = now_ns();
  const std::int64_t deadline = begin + kSecond / 50;
  int waits = 0;
  for (; now_ns() < deadline; ++waits) {
    port->wait(deadline);
  }
  EXPECT_LE(waits, 3) << "an old wake-up ends one wait, not many";
}

TEST_P(Port, a_watched_descriptor_ends_the_wait_as_long_as_it_is_readable) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  MAKE_OR_SKIP(port, files(1, kMiB));
  if (!port->watch(ends[0])) {
    EXPECT_STREQ(port->engine(), "threads");
    ::close(ends[0]);
    ::close(ends[1]);
    GTEST_SKIP() << "threads do not watch";
  }
  char byte = 1;
  std::array<IoCompletion, 4> none;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const char mine = 1;
    EXPECT_EQ(::write(ends[1], &mine, 1), 1);
  });
  while (::read(ends[0], &byte, 1) != 1) {
    port->wait(-1);  // Hangs if the port does not watch the descriptor.
    EXPECT_EQ(port->reap(none), 0U) << "it is not the completion of a request";
  }
  writer.join();
  for (int i = 0; i < 3; ++i) {  // The byte is not read, so it also ends the next wait.
    EXPECT_EQ(::write(ends[1], &byte, 1), 1);
    port->wait(-1);
    (void)port->reap(none);
    port->wait(-1);
    (void)port->reap(none);
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  }
  ::close(ends[1]);
  ::close(ends[0]);
}

TEST_P(Port, no_wake_from_another_thread_is_lost) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  // Each side waits for the other's count, so one lost wake-up hangs the test.
  constexpr int kRounds = 20000;
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  std::thread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      asked.store(round);
      port->wake();
      for (int seen = answered.load(); seen < round; seen = answered.load()) {
        answered.wait(seen);
      }
    }
  });
  IoCompletion none;
  while (answered.load() < kRounds) {
    port->wait(-1);
    EXPECT_EQ(port->reap({&none, 1}), 0U);
    answered.store(asked.load());
    answered.notify_one();
  }
  other.join();
}

TEST_P(Port, wakes_and_completions_together_lose_neither) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  ASSERT_TRUE(port->grow(0, kMiB).ok());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> posted{0};
  std::thread other([&] {
    while (!stop) {
      ++posted;
      port->wake();
      std::this_thread::yield();
    }
    ++posted;
    port->wake();
  });
  const Bytes data = pattern(64 * kKiB, 4);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(port->submit(request(i, i % 2 == 0, data.get(), 4096 * (i % 16), 4096)));
    IoCompletion completion;
    while (port->reap({&completion, 1}) == 0) {
      port->wait(-1);
    }
    ASSERT_EQ(completion.cookie, i);
    ASSERT_EQ(completion.result, 4096);
  }
  const std::uint64_t seen = posted;
  stop = true;
  while (posted == seen) {
    port->wait(-1);
  }
  other.join();
}

TEST_P(Port, destroying_it_waits_for_requests_in_flight) {
  for (const bool by_owner : {true, false}) {
    MAKE_OR_SKIP(port, files(1, 64 * kMiB));
    ASSERT_TRUE(port->grow(0, 64 * kMiB).ok());
    const Bytes data = pattern(32 * kMiB, 0);
    const auto use = [&] {
      for (std::uint64_t i = 0; i < 16; ++i) {
        EXPECT_TRUE(
            port->submit(request(i, false, data.get() + i * 2 * kMiB, i * 2 * kMiB, 2 * kMiB)));
      }
      port->flush();
    };
    if (by_owner) {
      use();
    } else {
      std::thread(use).join();
    }
    port.reset();
    // The file held zeros, so a read that arrives now would overwrite these bytes.
    std::memset(data.get(), 0x5a, 32 * kMiB);
    const timespec moment{0, 20'000'000};
    ::nanosleep(&moment, nullptr);
    for (std::uint64_t i = 0; i < 32 * kMiB; i += 4096) {
      ASSERT_EQ(data[i], std::byte{0x5a}) << "byte " << i << " changed after the port's end";
    }
  }
}

TEST_P(Port, it_names_its_engine) {
  MAKE_OR_SKIP(port, files(1, kMiB));
  const bool threads = GetParam() == Engine::threads;
  EXPECT_STREQ(port->engine(), threads ? "threads" : "io_uring");
  EXPECT_EQ(reason_.empty(), !threads);
  EXPECT_EQ(port->reason(), reason_);
}

INSTANTIATE_TEST_SUITE_P(engines, Port, ::testing::Values(Engine::io_uring, Engine::threads),
                         [](const auto& i) {
                           return i.param == Engine::threads ? "threads" : "io_uring";
                         });

TEST(MakeIoPort, where_io_uring_is_forbidden_threads_do_the_work_and_the_reason_is_known) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!answer_calls(SYS_io_uring_setup, EPERM)) {
      ::_exit(77);
    }
    std::string reason;
    PortOptions options;
    options.require = true;
    if (make_io_port(files(1, kMiB), options, reason) != nullptr) {
      ::_exit(2);
    }
    options.require = false;
    const auto port = make_io_port(files(1, kMiB), options, reason);
    const bool right = port != nullptr && std::string(port->engine()) == "threads" &&
                       port->reason() == reason &&
                       (reason == "io_uring refused: built without liburing" ||
                        reason.find("io_uring refused: Operation not permitted (seccomp or "
                                    "kernel.io_uring_disabled)") == 0);
    ::_exit(right ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "seccomp filters are not permitted";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(MakeIoPort, a_step_to_a_ring_is_refused_then_threads_have_the_files_and_nothing_stays_open) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer tests addresses with the calls that are refused here";
  }
  PortOptions options;
  options.require = true;
  std::string reason;
  if (make_io_port(files(1, kMiB), options, reason) == nullptr) {
    GTEST_SKIP() << reason;
  }
  struct Case {
    long number;
    const char* step;
  };
  for (const Case& each :
       {Case{SYS_pipe2, "registering files: "}, Case{SYS_io_uring_register, "registering files: "},
        Case{SYS_eventfd2, "eventfd: "}}) {
    EXPECT_TRUE(in_child([&] {
      auto devices = files(1, kMiB);
      if (!answer_calls(each.number, EMFILE)) {
        return false;
      }
      const auto open_descriptors = [] {
        int count = 0;
        for (int fd = 0; fd < 256; ++fd) {
          count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
        }
        return count;
      };
      const int before = open_descriptors();
      options.require = false;
      const auto port = make_io_port(std::move(devices), options, reason);
      EXPECT_STREQ(port->engine(), "threads");
      EXPECT_EQ(reason.find(std::string("io_uring refused: ") + each.step + "Too many open files"),
                0u)
          << reason;
      EXPECT_EQ(open_descriptors(), before);
      EXPECT_EQ(port->devices(), 1u);
      EXPECT_TRUE(port->grow(0, kMiB).ok());
      return !::testing::Test::HasFailure();
    })) << each.number;
  }
}

TEST(MakeIoPort, no_thread_can_be_created_then_there_is_no_port_and_the_reason_is_known) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer has threads of its own";
  }
  EXPECT_TRUE(in_child([] {
    PortOptions options;
    options.engine = Engine::threads;
    std::string reason;
    // The C library calls clone3, and clone if clone3 does not exist.
    if (!answer_calls(SYS_clone, EAGAIN) || !answer_calls(SYS_clone3, EAGAIN)) {
      return false;
    }
    EXPECT_EQ(make_io_port({}, options, reason), nullptr);
    EXPECT_EQ(reason,
              "threads were asked for; no thread can be created (RLIMIT_NPROC or pids.max)");
    return !::testing::Test::HasFailure();
  }));
}

}  // namespace
}  // namespace tiermem

// Mapped buffers with touches that are signals. Without userfaultfd (userfault=off) a touch of an
// absent extent raises SIGSEGV. With userfault=signal a touch of absent bytes raises SIGBUS, and
// the touching thread brings its page itself if it can. Goal: through the pointer everything works
// as with events of userfaultfd. Unsupported calls return an error that says so, and signals that
// are not tiermem's reach the program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/directory.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

const std::string kClosed = "; mechanism=auto; userfault=off";
const std::string kBySignal = "; userfault=signal";

struct Way {
  const char* name;
  std::string options;
  int signal;
  std::uint64_t extent;
  bool closes() const { return signal == SIGSEGV; }
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

struct MappedSignals : ::testing::TestWithParam<Way> {
  void SetUp() override {
    auto opened = Context::create(tiers(directory));
    if (opened.code() == Code::unsupported) {
      GTEST_SKIP() << opened.message();
    }
    ASSERT_TRUE(opened.ok()) << opened.message();
    context = std::move(opened).value();
    auto made = alloc(*context);
    if (made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    buffer = std::move(made).value();
    words = words_of(buffer);
  }
  static std::string tiers(const Directory& where) {
    return "dram=16M; nvme=" + where.path() + ":512M" + GetParam().options;
  }
  static Result<Buffer> alloc(Context& context) {
    return context.alloc(
        kBytes, {.extent_bytes = GetParam().extent, .flags = kMapped, .label = "by signals"});
  }
  static std::span<std::uint64_t> words_of(const Buffer& buffer) {
    return {reinterpret_cast<std::uint64_t*>(*buffer.address()), buffer.size() / 8};
  }
  bool large() const { return GetParam().extent > kMiB; }
  static constexpr std::uint64_t kBytes = 64 * kMiB;
  Directory directory;
  std::unique_ptr<Context> context;
  Buffer buffer;
  std::span<std::uint64_t> words;
};
INSTANTIATE_TEST_SUITE_P(Ways, MappedSignals,
                         ::testing::Values(Way{"closed", kClosed, SIGSEGV, 2 * kMiB},
                                           Way{"own_4k", kBySignal, SIGBUS, 4096},
                                           Way{"own_64k", kBySignal, SIGBUS, 65536},
                                           Way{"own_128k", kBySignal, SIGBUS, 131072},
                                           Way{"own_2m", kBySignal, SIGBUS, 2 * kMiB}),
                         ::testing::PrintToStringParamName());

TEST_P(MappedSignals, four_times_the_memory_is_read_and_written_through_the_pointer) {
  fill(words, 1);
  EXPECT_EQ(wrong(words, 1), 0u);
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, 16 * kMiB);
  EXPECT_GE(stats.demoted, 48 * kMiB);
  EXPECT_GT(stats.faults, 0u);
  if (GetParam().closes()) {
    EXPECT_GT(stats.moved_by_remap, 0u);
    EXPECT_EQ(stats.moved_by_uffd + stats.moved_by_copy, 0u);
  }
}

// Each thread counts in words of its own, all over the buffer, while extents come and go.
TEST_P(MappedSignals, running_writers_lose_no_write) {
  if (kThreadSanitizer && GetParam().closes()) {
    GTEST_SKIP() << "the thread sanitizer takes the closing of a window for a write to it";
  }
  constexpr unsigned kThreads = 4;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> rounds(kThreads);
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        for (std::size_t i = t; i < words.size(); i += 65536 / 8) {
          words[i] += 1;
        }
        ++rounds[t];
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    (void)buffer.evict();
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t bad = 0;
  for (unsigned t = 0; t < kThreads; ++t) {
    for (std::size_t i = t; i < words.size(); i += 65536 / 8) {
      bad += words[i] != rounds[t] ? 1 : 0;
    }
  }
  EXPECT_EQ(bad, 0u);
}

// Single words at random, of which a quarter is in memory: pages come alone to extents in parts.
// Each thread has words of its own, and knows their values.
TEST_P(MappedSignals, threads_that_touch_single_words_at_random_find_what_they_wrote) {
  if (kThreadSanitizer && GetParam().closes()) {
    GTEST_SKIP() << "the thread sanitizer takes the closing of a window for a write to it";
  }
  constexpr unsigned kThreads = 6;
  constexpr std::size_t kStep = 4096 / 8;
  const std::size_t pages = words.size() / kStep;
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::uint64_t> model(pages);
      const unsigned touches = large() ? 300 : 6000;
      for (unsigned i = 0; i < touches; ++i) {
        const std::size_t page = random() % pages;
        std::uint64_t& word = words[page * kStep + t];
        bad += word != model[page] ? 1 : 0;
        if (random() % 2 == 0) {
          word = model[page] = random();
        }
      }
      for (std::size_t page = t % 8; page < pages; page += 8) {
        bad += words[page * kStep + t] != model[page] ? 1 : 0;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    (void)buffer.evict(i % 4 * 16 * kMiB, 16 * kMiB);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
}

TEST_P(MappedSignals, emptied_pages_are_zero_and_errno_is_kept) {
  fill(words, 2);
  ASSERT_TRUE(buffer.evict(0, 4 * kMiB).ok());
  errno = 77;
  EXPECT_EQ(*const_cast<volatile std::uint64_t*>(&words[0]), word_at(2, 0));
  EXPECT_EQ(*const_cast<volatile std::uint64_t*>(&words[1023]), word_at(2, 1023));
  EXPECT_EQ(errno, 77);
  ASSERT_EQ(madvise(&words[0], 8192, MADV_DONTNEED), 0);
  EXPECT_EQ(words[0], 0u);
  ASSERT_TRUE(buffer.evict(0, 4 * kMiB).ok());
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1023], 0u);
  EXPECT_EQ(wrong(words.subspan(1024), 2, 1024), 0u);
}

TEST_P(MappedSignals, system_calls_on_absent_bytes_fail) {
  fill(words, 3);
  ASSERT_TRUE(buffer.evict(0, 2 * kMiB).ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(write(ends[1], &words[0], 4096), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(wrong(words, 3), 0u);
  EXPECT_EQ(write(ends[1], &words[words.size() - 512], 4096), 4096);
  close(ends[0]);
  close(ends[1]);
}

// Calls of tiermem touch the program's memory, too, some of them in threads of tiermem.
TEST_P(MappedSignals, the_calls_of_the_interface_read_and_write_such_memory) {
  fill(words, 4);
  auto other = *context->alloc(8 * kMiB, {.extent_bytes = 65536});
  ASSERT_TRUE(buffer.evict().ok());
  ASSERT_TRUE(other.write(0, words.data(), 4 * kMiB).ok());
  ASSERT_TRUE(buffer.evict().ok());
  ASSERT_TRUE(other.read(0, words.data() + 4 * kMiB / 8, 4 * kMiB).ok());
  EXPECT_EQ(wrong(words.first(4 * kMiB / 8), 4), 0u);
  EXPECT_EQ(wrong(words.subspan(4 * kMiB / 8, 4 * kMiB / 8), 4), 0u);
}

// A thread of tiermem touches the absent bytes then, and must get the signal.
TEST_P(MappedSignals, operations_of_the_interface_write_such_memory) {
  fill(words, 4);
  std::vector<std::uint64_t> source(kMiB / 8, 7);
  for (std::uint64_t at = 19'912; at < 16 * kMiB; at += 5 * kMiB) {
    ASSERT_TRUE(buffer.evict().ok());
    CopyItem item{buffer.handle(), at, source.data(), kMiB, kWrite};
    Op copy;
    ASSERT_TRUE(context->copy({&item, 1}, 0, Timeout::forever(), &copy).ok());
    EXPECT_TRUE(copy.wait().ok());
    const std::uint64_t rows[] = {at / 4096 + 600, at / 4096 + 700};
    Op scatter;
    ASSERT_TRUE(
        context
            ->scatter({.buffer = buffer.handle(), .row_bytes = 4096, .index = rows, .count = 2},
                      source.data(), Timeout::forever(), &scatter)
            .ok());
    EXPECT_TRUE(scatter.wait().ok());
    EXPECT_TRUE(std::ranges::equal(words.subspan(at / 8, kMiB / 8), source));
    for (const std::uint64_t row : rows) {
      EXPECT_TRUE(std::ranges::equal(words.subspan(row * 512, 512), std::span(source).first(512)));
    }
  }
}

std::span<std::uint64_t> g_words;
std::atomic<std::uint64_t> g_seen{0}, g_alarms{0};

// The program's signals come while threads wait, and their handlers touch absent bytes.
TEST_P(MappedSignals, handlers_of_the_program_touch_absent_bytes) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer delivers signals later";
  }
  fill(words, 5);
  g_words = words;
  g_seen = g_alarms = 0;
  struct sigaction ours {};
  struct sigaction before {};
  ours.sa_handler = [](int) {
    const std::uint64_t n = g_alarms.fetch_add(1);
    const std::size_t at = n * 0x9E3779B97F4A7C15u % g_words.size();
    g_seen += g_words[at] == word_at(5, at) ? 1 : 0;
  };
  ours.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &ours, &before), 0);
  const itimerval often = {{0, large() ? 20'000 : 500}, {0, large() ? 20'000 : 500}}, never = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  std::uint64_t bad = 0;
  std::mt19937_64 random(7);
  for (unsigned i = 0; i < (large() ? 300 : 3000) || g_alarms < 20; ++i) {
    const std::size_t at = random() % words.size();
    bad += *const_cast<volatile std::uint64_t*>(&words[at]) != word_at(5, at) ? 1 : 0;
  }
  ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(g_seen, g_alarms);
}

TEST_P(MappedSignals, two_contexts_serve_their_own_touches) {
  Directory another;
  auto second = make_context(tiers(another));
  auto its = *alloc(*second);
  const auto more = words_of(its);
  std::thread thread([&] { fill(more, 6); });
  fill(words, 7);
  thread.join();
  EXPECT_EQ(wrong(more, 6), 0u);
  EXPECT_EQ(wrong(words, 7), 0u);
  its = {};
  second.reset();
  EXPECT_EQ(wrong(words, 7), 0u);
}

sigjmp_buf back;
struct sigaction found {};
void* not_ours = nullptr;

void on_signal(int signal, siginfo_t* info, void* more) {
  if (info->si_addr == not_ours) {
    siglongjmp(back, 1);
  }
  found.sa_sigaction(signal, info, more);
}

// Returns a page outside of all buffers. Its touch raises the signal: it is closed memory, or a
// page of a file that ends before it.
void* mistake(const Way& way, const Directory& directory) {
  if (way.closes()) {
    return mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  const int fd = open(directory.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return page;
}

// The program sets its own handler later, and calls the one that it replaced.
TEST_P(MappedSignals, a_handler_of_the_program_that_calls_the_one_before_keeps_them_working) {
  not_ours = mistake(GetParam(), directory);
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (!GetParam().closes()) {
    sigfillset(&ours.sa_mask);  // As the handler that it calls.
  }
  ASSERT_EQ(sigaction(GetParam().signal, &ours, &found), 0);
  fill(words, 8);
  bool caught = false;
  if (sigsetjmp(back, 1) == 0) {
    (void)*static_cast<volatile char*>(not_ours);
  } else {
    caught = true;
  }
  EXPECT_TRUE(caught);
  EXPECT_EQ(wrong(words, 8), 0u);
  sigaction(GetParam().signal, &found, nullptr);
  munmap(not_ours, 4096);
}

/// Returns whether a child of fork that does `what` ends by SIGSEGV or SIGBUS, or, if a sanitizer
/// has a handler, by its report.
bool ends_child(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    what();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS;
  }
  return (kAddressSanitizer || kThreadSanitizer) && WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

TEST_P(MappedSignals, touches_that_are_mistakes_are_the_end) {
  fill(words, 9);
  EXPECT_TRUE(
      ends_child([&] { (void)*static_cast<volatile char*>(mistake(GetParam(), directory)); }));
  EXPECT_TRUE(ends_child([&] { (void)*const_cast<volatile std::uint64_t*>(&words[0]); }))
      << "a child of fork has none of it";
  EXPECT_TRUE(ends_child([&] {
    Directory own;
    auto made = make_context(tiers(own));
    auto gone = *alloc(*made);
    auto* const data = reinterpret_cast<volatile char*>(*gone.address());
    data[0] = 1;
    gone = {};
    made.reset();
    (void)data[0];
  })) << "after the end of its context";
  EXPECT_EQ(wrong(words, 9), 0u);
}

TEST(MappedSignalsOptions, what_cannot_be_says_why) {
  const Directory directory;
  auto closed = make_context("dram=16M; nvme=" + directory.path() + ":64M" + kClosed);
  auto small = closed->alloc(kMiB, {.extent_bytes = 65536, .flags = kMapped});
  EXPECT_EQ(small.code(), Code::unsupported);
  EXPECT_SAYS(small, "2 MiB");
  auto follows = make_context("dram=16M; nvme=off; fork=follow" + kClosed);
  auto refused = follows->alloc(4 * kMiB, {.flags = kMapped});
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_SAYS(refused, "userfaultfd");
  for (const char* const more : {"; fork=follow", "; mechanism=remap", "; mechanism=in_place"}) {
    auto none = Context::create("dram=16M; nvme=off" + kBySignal + more);
    ASSERT_EQ(none.code(), Code::unsupported) << more;
    EXPECT_SAYS(none, "userfault=signal");
  }
}

/// A file of 1 MiB of zeros, to be mapped by contexts with touches that are signals.
class MappedSignalsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Context::create("dram=16M; nvme=off" + kBySignal).code() == Code::unsupported) {
      GTEST_SKIP() << "no userfaultfd with signals";
    }
    ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
  }
  ~MappedSignalsFile() override { close(fd); }
  const Directory directory;
  const std::string path = directory.path() + "/file";
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
};

// The thread waits in the handler of its touch until the extent is closed for stores.
TEST_F(MappedSignalsFile, a_store_into_a_file_is_sigsegv_and_its_bytes_stay) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    struct sigaction action {};
    action.sa_handler = [](int) { _exit(42); };
    sigaction(SIGSEGV, &action, nullptr);
    auto context = make_context("dram=16M; nvme=off" + kBySignal);
    auto buffer =
        context->adopt_file(path.c_str(), 0, 0, {.extent_bytes = 65536, .flags = kMapped});
    if (!buffer.ok()) {
      _exit(buffer.code() == Code::unsupported ? 77 : 1);
    }
    auto* const data = reinterpret_cast<volatile char*>(*buffer->address());
    if (data[70000] != 0) {
      _exit(2);
    }
    data[70000] = 1;
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  char byte = 1;
  EXPECT_EQ(pread(fd, &byte, 1, 70000), 1);
  EXPECT_EQ(byte, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "no mapped files here";
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
}

// Bytes of an adopted file that have changed since are never shown.
TEST_F(MappedSignalsFile, a_page_that_cannot_be_read_is_sigbus) {
  EXPECT_TRUE(ends_child([&] {
    auto context = make_context("dram=16M; nvme=off" + kBySignal);
    auto buffer =
        context->adopt_file(path.c_str(), 0, 0, {.extent_bytes = 65536, .flags = kMapped});
    auto* const data = reinterpret_cast<const volatile char*>(*buffer->address());
    if (data[0] != 0 || ftruncate(fd, 4096) != 0) {
      _exit(0);
    }
    (void)data[512 << 10];
  }));
}

}  // namespace
}  // namespace tiermem::test

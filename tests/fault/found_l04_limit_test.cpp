// Memory runs out under many callers. Goal: the kernel refuses the process more address space while
// threads gather, scatter and wait for operations. Calls then end with errors, nothing stays
// pinned, and the context closes. Method: in a child, RLIMIT_AS is lowered to the used size while
// its threads work, and raised again; each round leaves another amount.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "fault/child.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kRowBytes = 256;
constexpr std::uint64_t kTable = 32 * kMiB;

/// Returns the size of this process's address space in bytes.
std::uint64_t used_space() {
  unsigned long pages = 0;
  if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lu", &pages) != 1) {
      pages = 0;
    }
    std::fclose(file);
  }
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Rows that need a few MiB of records in the arena, with their bytes outside the arena.
struct Caller {
  std::vector<std::uint64_t> index;
  std::vector<std::uint64_t> words;
  explicit Caller(std::uint64_t seed) : index(6000), words(6000 * kRowBytes / 8) {
    for (std::uint64_t i = 0; i < index.size(); ++i) {
      index[i] = (i * 7919 + seed * 104729) % (kTable / kRowBytes);
    }
  }
};

ChildEnd gather_while_memory_runs_out() {
  constexpr unsigned kThreads = 24;
  const Directory directory;
  auto context = make_context("dram=16M; workers=1; nvme=" + directory.path() + ":256M");
  auto made = context->alloc(kTable, {.advice = Advice::random, .label = "table"});
  EXPECT_TRUE(made.ok() && write_pattern(*made, 1).ok() && made->evict().ok());
  Buffer table = std::move(*made);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0}, refused{0}, other{0}, wrong_rows{0}, begun{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Caller caller(i);
      begun += 1;
      for (unsigned round = i; !stop; ++round) {
        const std::uint64_t n = 100 + round * 977 % 5900;
        Rows rows = table.rows(kRowBytes, caller.index);
        rows.count = n;
        Status status;
        Op op;
        if (round % 8 == 0) {
          status = context->gather(rows, caller.words.data(), Timeout::seconds(20), &op);
          status = status.ok() ? op.wait() : std::move(status);
        } else if (round % 8 == 1) {
          status = table.evict();
        } else {
          status = context->gather(rows, caller.words.data(), Timeout::seconds(20));
        }
        if (status.ok()) {
          done += 1;
          for (std::uint64_t row = 0; round % 8 != 1 && row < n; row += 97) {
            wrong_rows += wrong({&caller.words[row * kRowBytes / 8], kRowBytes / 8}, 1,
                                caller.index[row] * kRowBytes / 8);
          }
        } else if (status.code() == Code::no_capacity || status.code() == Code::busy) {
          refused += status.code() == Code::no_capacity ? 1 : 0;
        } else {
          other += 1;
        }
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return begun == kThreads; }));
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  for (const std::uint64_t left : {0u, 256u << 10, 2u << 20, 64u << 10}) {
    const std::uint64_t refusals = refused;
    const rlimit little{used_space() + left, before.rlim_max};
    ::setrlimit(RLIMIT_AS, &little);
    const std::uint64_t calls = done + refused;
    for (int i = 0; i < 2000 && (refused < refusals + 20 || done + refused < calls + 200); ++i) {
      ::usleep(100);
    }
    ::setrlimit(RLIMIT_AS, &before);
    const std::uint64_t so_far = done;
    EXPECT_TRUE(eventually([&] { return done > so_far + 20; })) << "it does not go on";
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::printf("%llu done, %llu refused\n", static_cast<unsigned long long>(done),
              static_cast<unsigned long long>(refused));
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(other, 0u);
  EXPECT_EQ(wrong_rows, 0u);
  EXPECT_TRUE(eventually([&] { return context->stats().dram_pinned == 0; }));
  EXPECT_EQ(wrong_words(table, 1), 0u);
  table.reset();
  const Status closed = context->close(false, Timeout::seconds(20));
  EXPECT_TRUE(closed.ok()) << closed.message();
  return {};
}

TEST(FaultsFound, L04_memory_runs_out_while_threads_gather_then_calls_end_with_statuses) {
  SKIP_IF(in_child(gather_while_memory_runs_out));
}

}  // namespace
}  // namespace tiermem::test

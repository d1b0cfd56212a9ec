// Exceptions in callers. Goal: whichever allocation of a call is refused, the call returns
// no_capacity with a message and leaves nothing behind: no pin, no buffer, no request that points
// to a stack. The same call then succeeds. Method: a wrapper of the arena refuses the n-th
// allocation of the calling thread, for every n until none is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "arena/refused_arena.hpp"
#include "support/found.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kRowBytes = 256;
constexpr std::uint64_t kTable = 6 * kMiB;

class Refusals : public ::testing::Test {
 protected:
  using Call = std::function<Status(Context&)>;

  void open(const std::string& more = "") {
    context_ = make_context("dram=8M; workers=1; nvme=" + directory_.path() + ":64M" + more);
    auto made = context_->alloc(kTable, {.advice = Advice::random, .label = "table"});
    ASSERT_TRUE(made.ok()) << made.message();
    table_ = std::move(made).value();
    ASSERT_TRUE(write_pattern(table_, 1).ok());
    auto target = context_->alloc(kTable, {.label = "target"});
    ASSERT_TRUE(target.ok());
    target_ = std::move(target).value();
    for (std::uint64_t i = 0; i < 400; ++i) {
      index_.push_back((i + 1) * 7919 % (kTable / kRowBytes));
    }
  }
  void TearDown() override {
    target_.reset();
    table_.reset();
    if (context_ != nullptr) {
      EXPECT_TRUE(context_->close(false, Timeout::seconds(20)).ok());
    }
  }
  bool nothing_left(std::uint64_t buffers) const {
    const auto whole = [&] {
      const Stats stats = context_->stats();
      return stats.dram_pinned == 0 && stats.buffers == buffers;
    };
    return eventually(whole);
  }
  void evict() {
    const Access both[] = {table_.range(), target_.range()};
    ASSERT_TRUE(context_->evict(both).ok());
  }
  /// Refuses each allocation of `call` in turn. `before` prepares what the call needs.
  void sweep(const char* name, const Call& call, const std::function<void()>& before = {}) {
    SCOPED_TRACE(name);
    const std::uint64_t buffers = context_->stats().buffers;
    std::uint64_t n = 0;
    for (bool refused = true; refused && !HasFailure();) {
      ++n;
      for (const bool for_good : {false, true}) {
        if (before) {
          before();
        }
        Status status;
        {
          const RefusedArena door(n, for_good);
          status = call(*context_);
          refused = RefusedArena::refused();
        }
        if (!status.ok()) {
          EXPECT_TRUE(refused) << status.message();
          EXPECT_EQ(status.code(), Code::no_capacity) << n << ": " << status.message();
          EXPECT_GT(std::strlen(status.message()), 20u) << status.message();
        }
        ASSERT_TRUE(nothing_left(buffers)) << "after allocation " << n << " was refused";
      }
      ASSERT_LT(n, 1000u);
    }
    if (before) {
      before();
    }
    const Status after = call(*context_);
    EXPECT_TRUE(after.ok()) << after.message();
    EXPECT_TRUE(nothing_left(buffers));
    std::printf("%s: %llu allocations\n", name, static_cast<unsigned long long>(n - 1));
  }
  Status gather(Op* op = nullptr) {
    words_.assign(index_.size() * kRowBytes / 8, 0);
    return context_->gather(table_.rows(kRowBytes, index_), words_.data(), Timeout::seconds(20),
                            op);
  }
  std::uint64_t wrong_rows() const {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < index_.size(); ++i) {
      n += wrong({&words_[i * kRowBytes / 8], kRowBytes / 8}, 1, index_[i] * kRowBytes / 8);
    }
    return n;
  }

  Directory directory_;
  std::unique_ptr<Context> context_;
  Buffer table_, target_;
  std::vector<std::uint64_t> index_, words_;
};

FOUND_TEST(Refusals, L04_gather_and_scatter_whose_allocations_are_refused_leave_nothing_behind) {
  open();
  const auto out = [&] { evict(); };
  sweep(
      "gather", [&](Context&) { return gather(); }, out);
  EXPECT_EQ(wrong_rows(), 0u);
  sweep(
      "gather_into",
      [&](Context& context) {
        return context.gather_into(table_.rows(kRowBytes, index_), target_.handle());
      },
      out);
  sweep(
      "scatter",
      [&](Context& context) {
        return context.scatter(table_.rows(kRowBytes, index_), words_.data());
      },
      out);
  evict();
  EXPECT_EQ(wrong_words(table_, 1), 0u);
}

FOUND_TEST(Refusals, L04_the_row_cache_is_made_or_leaves_nothing_behind) {
  for (std::uint64_t n = 1; n < 20 && !HasFailure(); ++n) {
    open("; row_cache=64K");
    evict();
    {
      const RefusedArena door(n);
      (void)gather();
    }
    evict();
    EXPECT_TRUE(gather().ok());
    EXPECT_EQ(wrong_rows(), 0u);
    EXPECT_LE(context_->stats().dram_pinned, 64u << 10) << n;
    target_.reset();
    table_.reset();
    EXPECT_TRUE(context_->close(false, Timeout::seconds(20)).ok()) << n;
    context_.reset();
    index_.clear();
  }
}

FOUND_TEST(Refusals, L04_operations_whose_allocations_are_refused_end_and_leave_nothing_behind) {
  open();
  const auto out = [&] { evict(); };
  sweep(
      "acquire_async",
      [&](Context& context) {
        const Access list[] = {table_.range(0, 64 << 10), target_.range(0, 64 << 10)};
        ViewRecord views[2];
        auto op = context.acquire_async(list, views);
        Status status = op.ok() ? op->wait() : op.status().clone();
        return status.ok() ? context.release(views) : std::move(status);
      },
      out);
  sweep(
      "prefetch with an operation",
      [&](Context& context) {
        const Access range = table_.range(0, kMiB);
        Op op;
        Status status = context.prefetch({&range, 1}, 0, &op);
        return status.ok() ? op.wait() : std::move(status);
      },
      out);
  sweep(
      "gather with an operation",
      [&](Context&) {
        Op op;
        Status status = gather(&op);
        return status.ok() ? op.wait() : std::move(status);
      },
      out);
}

FOUND_TEST(Refusals, L04_calls_of_lists_whose_allocations_are_refused_leave_nothing_behind) {
  open();
  const auto out = [&] { evict(); };
  const auto list = [&] {
    return std::array<Access, 2>{table_.range(0, kMiB), target_.range(4096, kMiB)};
  };
  sweep(
      "acquire",
      [&](Context& context) {
        std::array<ViewRecord, 2> views;
        Status status = context.acquire(list(), Timeout::seconds(20), views);
        return status.ok() ? context.release(views) : std::move(status);
      },
      out);
  sweep("evict", [&](Context& context) { return context.evict(list()); });
  sweep(
      "migrate",
      [&](Context& context) {
        return context.migrate(list(), {Kind::dram, 0});
      },
      out);
  sweep("advise cold", [&](Context& context) { return context.advise(list(), Advice::cold); });
  sweep(
      "advise dont_need",
      [&](Context& context) {
        const Access range = target_.range(100, kMiB);
        return context.advise({&range, 1}, Advice::dont_need);
      },
      out);
  sweep(
      "read",
      [&](Context&) {
        std::vector<std::byte> bytes(3 * kMiB);
        return table_.read(100, bytes.data(), bytes.size());
      },
      out);
  sweep(
      "write",
      [&](Context&) {
        const std::vector<std::byte> bytes(3 * kMiB);
        return target_.write(100, bytes.data(), bytes.size());
      },
      out);
  sweep("stats_json", [&](Context& context) { return context.stats_json().status().clone(); });
  sweep("why", [&](Context& context) { return context.why(table_.handle(), 0).status().clone(); });
  sweep("info", [&](Context&) { return table_.info().status().clone(); });
  sweep("set_budget", [&](Context& context) {
    return context.set_budget({Kind::dram, 0}, 8 * kMiB);
  });
}

FOUND_TEST(Refusals, L04_buffers_and_blocks_whose_allocations_are_refused_are_not_left_behind) {
  open();
  std::vector<std::uint64_t> words(kMiB / 8);
  fill(words, 3);
  std::ofstream(directory_.path() + "/file", std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), kMiB);
  const auto freed = [](Result<Buffer> made) {
    return made.ok() ? made->context().free(made->detach()) : std::move(made).status();
  };
  sweep("alloc", [&](Context& context) { return freed(context.alloc(64 << 10)); });
  sweep("alloc of several extents",
        [&](Context& context) { return freed(context.alloc(9 * kMiB)); });
  sweep("alloc with advice",
        [&](Context& context) { return freed(context.alloc(kMiB, {.advice = Advice::cold})); });
  sweep("alloc mapped", [&](Context& context) {
    auto made = context.alloc(kMiB, {.flags = kMapped});
    return made.code() == Code::unsupported ? Status() : freed(std::move(made));
  });
  sweep("alloc, touch and free", [&](Context& context) {
    auto made = context.alloc(64 << 10, {.flags = kIsolated});
    Status status = made.ok() ? made->acquire(kDiscard).status().clone() : made.status().clone();
    return status;
  });
  sweep("adopt_file", [&](Context& context) {
    auto made =
        context.adopt_file((directory_.path() + "/file").c_str(), 0, 0, {.extent_bytes = 64 << 10});
    std::vector<std::uint64_t> read(kMiB / 8);
    Status status = made.ok() ? made->read(0, read.data(), kMiB) : made.status().clone();
    EXPECT_TRUE(!status.ok() || read == words);
    return status;
  });
  for (const Place place : {Place{Kind::any, 0}, Place{Kind::dram, 0}}) {
    // The heap keeps chunks for the next block. They do not count as a buffer of the program.
    const auto block = [&](std::uint64_t bytes) {
      return [&, bytes](Context& context) {
        auto made = context.malloc_at(place, bytes);
        return made.ok() ? context.free_ptr(*made) : std::move(made).status();
      };
    };
    for (std::uint64_t n = 1; n < 40; ++n) {
      const RefusedArena door(n);
      for (const std::uint64_t bytes : {100u, 20'000u, 1u << 20}) {
        const Status status = block(bytes)(*context_);
        EXPECT_TRUE(status.ok() || status.code() == Code::no_capacity) << status.message();
      }
    }
    EXPECT_TRUE(block(100)(*context_).ok());
    EXPECT_TRUE(block(1 << 20)(*context_).ok());
    EXPECT_EQ(context_->stats().placed_used, 0u);
  }
  // One chunk stays for the next block.
  EXPECT_LE(context_->stats().dram_pinned, 2 * kMiB);
}

bool has_open(const std::string& path) {
  std::error_code gone;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (std::filesystem::read_symlink(each.path(), gone) == path) {
      return true;
    }
  }
  return false;
}

// The mover closes the file of a freed buffer. No call but the free wakes it.
TEST_F(Refusals, a_free_whose_record_is_refused_ends_without_another_call) {
  context_ = make_context("dram=8M; workers=1; busy_poll=0; nvme=off");
  const std::string path = directory_.path() + "/file";
  std::ofstream(path) << std::string(4096, 'f');
  for (int i = 0; i < 20; ++i) {
    auto file = context_->adopt_file(path.c_str());
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_TRUE(has_open(path));
    const Handle handle = file->detach();
    {
      const RefusedArena door(1);
      EXPECT_TRUE(context_->free(handle).ok());
      EXPECT_TRUE(RefusedArena::refused());
    }
    ASSERT_TRUE(eventually([&] { return !has_open(path); })) << i;
  }
}

// A thread must not be affected while another thread is refused memory, and vice versa.
FOUND_TEST(Refusals, L04_threads_whose_allocations_are_refused_do_not_disturb_each_other) {
  open();
  evict();
  std::atomic<int> refusals{0};
  const auto work = [&](std::uint64_t seed) {
    std::vector<std::uint64_t> words(index_.size() * kRowBytes / 8);
    for (std::uint64_t round = 0; round < 120; ++round) {
      const std::uint64_t n = (round * 7 + seed * 13) % 60;
      std::fill(words.begin(), words.end(), 0);
      Status status;
      bool refused = false;
      {
        const RefusedArena door(n, round % 3 == 0);
        Op op;
        switch (round % 4) {
          case 0:
            status = context_->gather(table_.rows(kRowBytes, index_), words.data());
            break;
          case 1:
            status = context_->gather(table_.rows(kRowBytes, index_), words.data(),
                                      Timeout::forever(), &op);
            status = status.ok() ? op.wait() : std::move(status);
            break;
          case 2:
            status = context_->gather_into(table_.rows(kRowBytes, index_), target_.handle(),
                                           seed * kMiB);
            break;
          default:
            status = table_.evict(seed * kMiB, kMiB);
        }
        refused = n != 0 && RefusedArena::refused();
      }
      refusals += status.ok() ? 0 : 1;
      EXPECT_TRUE(status.ok() || (refused && status.code() == Code::no_capacity) ||
                  (round % 4 == 3 && status.code() == Code::busy))
          << status.message();
      for (std::size_t i = 0; status.ok() && round % 4 < 2 && i < index_.size(); ++i) {
        ASSERT_EQ(wrong({&words[i * kRowBytes / 8], kRowBytes / 8}, 1, index_[i] * kRowBytes / 8),
                  0u);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(refusals, 0);
  EXPECT_TRUE(nothing_left(2));
}

}  // namespace
}  // namespace tiermem::test

// Contexts with memories in persistent memory (`pmem`). Any directory serves: on a file system
// without DAX the bytes pass through the page cache. tests/rig runs them on a DAX file system and
// on a DAX device.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr Place kDram{Kind::dram, 0};
constexpr Place kPmem{Kind::pmem, 0};

class PersistentMemories : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const named = std::getenv("TIERMEM_TEST_PMEM");
    path_ = named != nullptr ? named : directory_.path();
  }
  std::string spec(const std::string& dram, const std::string& more) const {
    return "dram=" + dram + "; pmem=" + path_ + ":32M; nvme=" + directory_.path() + ":256M" + more;
  }
  std::unique_ptr<Context> make(const std::string& dram) { return make_context(spec(dram, "")); }
  static std::uint64_t used(const Context& context, Place place) {
    const Stats stats = context.stats();
    const TierStats* const tier = stats.tier(place);
    return tier != nullptr ? tier->used : 0;
  }
  // Returns whether each MiB of the buffer is in the memory at the place.
  static bool all_in(Context& context, const Buffer& buffer, Place place) {
    for (std::uint64_t at = 0; at < buffer.size(); at += kMiB) {
      const auto where = context.why(buffer.handle(), at);
      if (!where.ok() || where->place != place) {
        return false;
      }
    }
    return true;
  }
  Directory directory_;
  std::string path_;
};

TEST_F(PersistentMemories, bytes_that_dram_has_no_room_for_go_to_persistent_memory) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 32 * kMiB, "fits in both");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  EXPECT_LE(used(*context, kDram), 8 * kMiB);
  EXPECT_GE(used(*context, kPmem), 20 * kMiB);
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  const Stats stats = context->stats();
  EXPECT_EQ(stats.tier(kPmem)->budget, 32 * kMiB);
  EXPECT_LE(stats.demoted, 4 * kMiB) << "persistent memory had room: no drive was needed";
  EXPECT_EQ(context->set_budget(kPmem, 64 * kMiB).code(), Code::invalid_argument)
      << "its file has 32 MiB";
  ASSERT_TRUE(context->set_budget(kPmem, 8 * kMiB).ok());
  EXPECT_LE(used(*context, kPmem), 8 * kMiB);
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  ASSERT_TRUE(context->set_budget(kPmem, 32 * kMiB).ok());
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
}

TEST_F(PersistentMemories, views_read_and_write_in_place) {
  auto context = make("32M");
  ASSERT_NE(context, nullptr);
  auto made = context->alloc(16 * kMiB, {.preferred = kPmem, .label = "in place"});
  ASSERT_TRUE(made.ok()) << made.message();
  ASSERT_TRUE(write_pattern(*made, 3).ok());
  EXPECT_TRUE(all_in(*context, *made, kPmem));
  const Stats before = context->stats();
  EXPECT_EQ(wrong_words(*made, 3), 0u);
  ASSERT_TRUE(write_pattern(*made, 4).ok());
  EXPECT_EQ(wrong_words(*made, 4), 0u);
  const Stats after = context->stats();
  EXPECT_TRUE(all_in(*context, *made, kPmem));
  EXPECT_EQ(after.promoted, before.promoted);
  EXPECT_LT(used(*context, kDram), 2 * kMiB) << "nothing was copied to DRAM";
}

TEST_F(PersistentMemories, extents_that_are_used_climb_to_dram) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  Buffer cold = make_buffer(*context, 12 * kMiB, "cold");
  Buffer hot = make_buffer(*context, 8 * kMiB, "hot");
  ASSERT_TRUE(write_pattern(hot, 1).ok());
  ASSERT_TRUE(write_pattern(cold, 2).ok());
  Buffer other = make_buffer(*context, 12 * kMiB, "other");
  ASSERT_TRUE(write_pattern(other, 3).ok());
  for (int i = 0; i < 1000 && !all_in(*context, hot, kDram); ++i) {
    EXPECT_EQ(wrong_words(hot, 1), 0u);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(all_in(*context, hot, kDram));
  EXPECT_EQ(wrong_words(cold, 2), 0u);
  EXPECT_EQ(wrong_words(other, 3), 0u);
}

// Small buffers have one extent, and no window.
TEST_F(PersistentMemories, buffers_of_every_size_keep_their_bytes) {
  auto context = make("4M");
  ASSERT_NE(context, nullptr);
  std::vector<Buffer> buffers;
  std::uint64_t bytes = 4096;
  for (unsigned i = 0; i < 60; ++i, bytes = bytes == 8 * kMiB ? 4096 : bytes * 2) {
    buffers.push_back(make_buffer(*context, bytes, "one of many"));
    ASSERT_TRUE(write_pattern(buffers.back(), i).ok());
  }
  EXPECT_GT(used(*context, kPmem), 0u);
  EXPECT_GT(context->stats().demoted, 0u);
  for (unsigned i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(wrong_words(buffers[i], i), 0u) << buffers[i].size() << " bytes";
  }
}

TEST_F(PersistentMemories, mapped_buffers_go_from_dram_to_the_drive) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  auto made = context->alloc(64 * kMiB, {.flags = kMapped, .label = "mapped"});
  if (made.code() == Code::unsupported) {
    GTEST_SKIP() << made.message();
  }
  ASSERT_TRUE(made.ok()) << made.message();
  Buffer plain = make_buffer(*context, 16 * kMiB, "plain");
  for (unsigned round = 1; round < 3; ++round) {
    ASSERT_TRUE(write_pattern(*made, round).ok());
    ASSERT_TRUE(write_pattern(plain, 10 + round).ok());
    EXPECT_EQ(wrong_words(*made, round), 0u);
    EXPECT_EQ(wrong_words(plain, 10 + round), 0u);
  }
  for (std::uint64_t at = 0; at < made->size(); at += kMiB) {
    const auto where = context->why(made->handle(), at);
    ASSERT_TRUE(where.ok()) << where.message();
    EXPECT_NE(where->place.kind, Kind::pmem) << at;
  }
  EXPECT_GT(context->stats().demoted, 48 * kMiB);
  const auto refused =
      context->alloc(8 * kMiB, {.flags = kMapped, .preferred = kPmem, .label = "no"});
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_EQ(made->prefer(kPmem).code(), Code::unsupported);
}

TEST_F(PersistentMemories, request_for_mapped_bytes_larger_than_dram_is_refused_at_once) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  auto made = context->alloc(16 * kMiB, {.flags = kMapped, .label = "mapped"});
  if (made.code() == Code::unsupported) {
    GTEST_SKIP() << made.message();
  }
  ASSERT_TRUE(made.ok()) << made.message();
  const auto view = made->acquire(kRead, 0, 0, Timeout::seconds(20));
  EXPECT_EQ(view.code(), Code::no_capacity) << view.message();
  EXPECT_SAYS(view, "budget 8.00 MiB");
}

TEST_F(PersistentMemories, request_for_plain_and_mapped_bytes_gets_both) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  // The request collects room in the order of the buffers: those for DRAM only come last.
  Buffer plain = make_buffer(*context, 24 * kMiB, "plain");
  auto mapped = context->alloc(8 * kMiB, {.flags = kMapped, .label = "mapped"});
  if (mapped.code() == Code::unsupported) {
    GTEST_SKIP() << mapped.message();
  }
  ASSERT_TRUE(mapped.ok()) << mapped.message();
  ASSERT_TRUE(write_pattern(*mapped, 1).ok());
  ASSERT_TRUE(write_pattern(plain, 2).ok());
  ASSERT_TRUE(mapped->evict().ok());
  ASSERT_TRUE(plain.evict().ok());
  const Access both[] = {plain.range(), mapped->range()};
  ViewRecord views[2];
  const Status got = context->acquire(both, Timeout::seconds(20), views);
  ASSERT_TRUE(got.ok()) << got.message();
  EXPECT_EQ(wrong({static_cast<const std::uint64_t*>(views[0].data), 3 * kMiB}, 2), 0u);
  EXPECT_EQ(wrong({static_cast<const std::uint64_t*>(views[1].data), kMiB}, 1), 0u);
  ASSERT_TRUE(context->release(views).ok());
}

// With each way in which the frames of DRAM appear in windows.
TEST_F(PersistentMemories, readers_and_writers_see_their_bytes_while_extents_move) {
  for (const std::string more :
       {"", "; userfault=off", "; mechanism=copy", "; mechanism=remap", "; mechanism=in_place"}) {
    SCOPED_TRACE(more);
    auto context = Context::create(spec("8M", more));
    if (!context.ok()) {
      EXPECT_EQ(context.code(), Code::unsupported) << context.message();
      continue;  // This kernel lacks the mechanism.
    }
    constexpr unsigned kThreads = 4;
    std::vector<Buffer> buffers;
    for (unsigned i = 0; i < kThreads; ++i) {
      buffers.push_back(make_buffer(**context, 16 * kMiB, "of a thread"));
      ASSERT_TRUE(write_pattern(buffers[i], i).ok());
    }
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (unsigned round = 0; round < 4; ++round) {
          wrong += wrong_words(buffers[i], i + 100 * round);
          wrong += write_pattern(buffers[i], i + 100 * (round + 1)).ok() ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_LE(used(**context, kDram), 8 * kMiB);
    EXPECT_LE(used(**context, kPmem), 32 * kMiB);
    EXPECT_GT((*context)->stats().demoted, 0u) << "the drive had its part";
  }
}

TEST_F(PersistentMemories, paths_that_cannot_be_memory_are_refused_with_the_remedy) {
  const auto says = [&](const std::string& named, Code code, std::string_view what) {
    const auto context = Context::create("dram=8M; nvme=off; pmem=" + named);
    ASSERT_FALSE(context.ok()) << named;
    EXPECT_EQ(context.code(), code) << context.message();
    for (const std::string_view part : {std::string_view("pmem="), what, std::string_view("; ")}) {
      EXPECT_NE(std::string_view(context.message()).find(part), std::string_view::npos)
          << context.message();
    }
  };
  says(directory_.path() + "/missing:32M", Code::invalid_argument, "No such file");
  says("/dev/null:32M", Code::invalid_argument, "neither a directory nor a DAX device");
  says(directory_.path(), Code::invalid_argument, "needs a size");
  says(directory_.path() + ":60T", Code::invalid_argument, "its file system has");
  const auto both = Context::create("dram=8M; fork=follow; pmem=" + directory_.path() + ":32M");
  EXPECT_EQ(both.code(), Code::unsupported) << both.message();
}

// A child that inherited the mapping would change its parent's bytes.
TEST_F(PersistentMemories, child_of_fork_does_not_have_the_bytes) {
  auto context = make("32M");
  ASSERT_NE(context, nullptr);
  auto made = context->alloc(8 * kMiB, {.preferred = kPmem, .label = "not inherited"});
  ASSERT_TRUE(made.ok()) << made.message();
  ASSERT_TRUE(write_pattern(*made, 5).ok());
  auto view = made->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  std::byte* const data = const_cast<std::byte*>(view->as<const std::byte>().data());
  unsigned char there = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool mapped = ::mincore(data, 4096, &there) == 0;
    ::_exit(mapped ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::mincore(data, 4096, &there), 0);
}

}  // namespace
}  // namespace tiermem::test

// Requests for more than fits. Goal: a request that can be met is met, however late. One that
// cannot be met is refused within its time with tier, budget, holder and setting. Two callers never
// starve each other.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/child.hpp"
#include "support/pattern.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class NoRoom : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& dram, bool block = true) {
    return make_context("dram=" + dram + "; nvme=" + (block ? directory_.path() + ":512M" : "off"));
  }
  Directory directory_;
};

TEST_F(NoRoom, a_budget_below_one_extent_serves_small_extents_and_names_itself_to_large_ones) {
  auto context = make("1M");
  ASSERT_NE(context, nullptr);
  Buffer large = make_buffer(*context, 8 * kMiB, "large");
  auto view = large.acquire(kWrite, 0, 1, Timeout::seconds(5));
  ASSERT_EQ(view.code(), Code::no_capacity);
  EXPECT_EQ(view.status().info()->budget, kMiB);
  EXPECT_EQ(view.status().info()->needed, 2 * kMiB);
  EXPECT_STREQ(view.status().info()->setting, "dram");
  EXPECT_SAYS(view, "2.00 MiB");
  EXPECT_SAYS(view, "1.00 MiB");
  EXPECT_EQ(large.write(0, "x", 1).code(), Code::no_capacity);
  EXPECT_EQ(large.evict().code(), Code::ok) << "nothing of it is in memory";
  BufferOptions options;
  options.extent_bytes = 64 << 10;
  auto fitting = context->alloc(8 * kMiB, options);
  ASSERT_TRUE(fitting.ok()) << fitting.message();
  for (std::uint64_t at = 0; at < fitting->size(); at += 256 << 10) {
    auto part = fitting->acquire(kDiscard, at, 256 << 10);
    ASSERT_TRUE(part.ok()) << part.message();
    fill(part->as<std::uint64_t>(), 1, at / 8);
  }
  for (std::uint64_t at = 0; at < fitting->size(); at += 256 << 10) {
    auto part = fitting->acquire(kRead, at, 256 << 10);
    ASSERT_TRUE(part.ok()) << part.message();
    ASSERT_EQ(wrong(part->as<std::uint64_t>(), 1, at / 8), 0u);
  }
}

TEST_F(NoRoom, without_a_block_tier_full_is_full_and_the_words_say_so) {
  auto context = make("8M", false);
  ASSERT_NE(context, nullptr);
  Buffer data = make_buffer(*context, 8 * kMiB, "all of it");
  ASSERT_TRUE(write_pattern(data, 2).ok());
  Buffer more = make_buffer(*context, 2 * kMiB, "more");
  auto view = more.acquire(kWrite);
  ASSERT_EQ(view.code(), Code::no_capacity);
  EXPECT_SAYS(view, "no block tier");
  EXPECT_SAYS(view, "8.00 MiB");
  EXPECT_EQ(wrong_words(data, 2), 0u);
  data.reset();
  EXPECT_TRUE(more.acquire(kWrite).ok());
}

TEST_F(NoRoom, of_several_holders_the_largest_is_named_with_what_all_hold) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  Buffer small = make_buffer(*context, 4 * kMiB, "the small holder");
  Buffer large = make_buffer(*context, 12 * kMiB, "the large holder");
  auto one = small.acquire(kWrite);
  auto two = large.acquire(kWrite);
  ASSERT_TRUE(one.ok() && two.ok());
  Buffer more = make_buffer(*context, 2 * kMiB, "more");
  auto view = more.acquire(kWrite, 0, 0, Timeout::milliseconds(20));
  ASSERT_EQ(view.code(), Code::no_capacity);
  EXPECT_STREQ(view.status().info()->holder, "the large holder");
  EXPECT_EQ(view.status().info()->pinned, 16 * kMiB);
  EXPECT_SAYS(view, "the large holder");
  EXPECT_SAYS(view, "16.0 MiB");
  EXPECT_EQ(context->evict(std::array{small.range(), large.range()}).code(), Code::busy);
  const Status closed = context->close();
  EXPECT_EQ(closed.code(), Code::busy);
  EXPECT_SAYS(closed, "the small holder");
  EXPECT_SAYS(closed, "the large holder");
  const Status shrunk = context->set_budget({Kind::dram, 0}, 8 * kMiB, Timeout::milliseconds(20));
  EXPECT_EQ(shrunk.code(), Code::no_capacity);
  EXPECT_STREQ(shrunk.info()->holder, "the large holder");
  EXPECT_EQ(context->stats().dram_budget, 16 * kMiB) << "the old budget stays";
  std::thread releasing([&] { two->release(); });
  EXPECT_TRUE(more.acquire(kWrite, 0, 0, Timeout::seconds(20)).ok())
      << "a release is enough, and is noticed";
  releasing.join();
}

TEST_F(NoRoom, the_c_interface_names_the_holder_and_the_setting) {
  tm_context* context = nullptr;
  ASSERT_EQ(
      tm_context_create(("dram=4M; nvme=" + directory_.path() + ":64M").c_str(), nullptr, &context),
      TM_OK);
  tm_buffer_options options{};
  options.size = sizeof(options);
  options.label = "held in C";
  tm_buffer held = 0;
  tm_buffer more = 0;
  ASSERT_EQ(tm_alloc(context, 4 * kMiB, &options, &held), TM_OK);
  ASSERT_EQ(tm_alloc(context, 2 * kMiB, nullptr, &more), TM_OK);
  tm_access range{};
  range.buffer = held;
  range.mode = TM_WRITE;
  tm_view view{};
  const tm_stream host{};
  ASSERT_EQ(tm_acquire(context, &range, 1, host, -1, &view), TM_OK);
  range.buffer = more;
  tm_view other{};
  EXPECT_EQ(tm_acquire(context, &range, 1, host, 20'000'000, &other), TM_NO_CAPACITY);
  tm_error_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(tm_error(context, 0, &info), TM_OK);
  EXPECT_EQ(info.status, TM_NO_CAPACITY);
  EXPECT_STREQ(info.holder, "held in C");
  EXPECT_STREQ(info.setting, "dram");
  EXPECT_EQ(info.budget, 4 * kMiB);
  EXPECT_EQ(info.pinned, 4 * kMiB);
  EXPECT_EQ(tm_context_destroy(context, 0, 1'000'000'000), TM_BUSY);
  EXPECT_EQ(tm_release(context, &view, 1, host), TM_OK);
  EXPECT_EQ(tm_release(context, &view, 1, host), TM_INVALID_ARGUMENT);
  EXPECT_EQ(tm_context_destroy(context, 0, 1'000'000'000), TM_OK)
      << "buffers need not be freed before";
}

// Each caller wants two thirds of the memory, in ranges of three buffers that are named in
// different orders. If room were reserved range by range, each would hold half of the others' needs
// for ever.
TEST_F(NoRoom, callers_that_each_want_most_of_the_memory_are_served_one_after_the_other) {
  auto context = make("24M");
  ASSERT_NE(context, nullptr);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(make_buffer(*context, 16 * kMiB, "shared"));
  }
  constexpr int kThreads = 3;
  constexpr std::uint64_t kRounds = 12;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        std::array<Access, 3> list;
        for (int i = 0; i < 3; ++i) {
          const std::uint64_t part = static_cast<std::uint64_t>(t % 2) * 6 * kMiB;
          list[static_cast<std::size_t>(i)] = buffers[static_cast<std::size_t>((t + i) % 3)].range(
              part, 16 * kMiB / 3 / 4096 * 4096, kWrite);
        }
        std::array<ViewRecord, 3> views{};
        const Status status = context->acquire(list, Timeout::seconds(60), views);
        ASSERT_TRUE(status.ok()) << status.message();
        for (const ViewRecord& view : views) {
          // Each thread has its own word in a range that it shares with another.
          *(static_cast<std::uint64_t*>(view.data) + t) += 1;
        }
        EXPECT_TRUE(context->release(views).ok());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t sum = 0;
  for (Buffer& shared : buffers) {
    for (const std::uint64_t part : {std::uint64_t{0}, 6 * kMiB}) {
      auto view = shared.acquire(kRead, part, 4096);
      ASSERT_TRUE(view.ok()) << view.message();
      for (int t = 0; t < kThreads; ++t) {
        sum += view->as<std::uint64_t>()[static_cast<std::size_t>(t)];
      }
    }
  }
  EXPECT_EQ(sum, kThreads * kRounds * 3);
  EXPECT_LE(context->stats().dram_used, 24 * kMiB);
}

TEST_F(NoRoom, a_wait_for_a_pin_ends_with_its_timeout_and_leaves_nothing_behind) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  Buffer held = make_buffer(*context, 6 * kMiB, "held");
  Buffer wide = make_buffer(*context, 8 * kMiB, "wide");
  auto view = held.acquire(kWrite);
  ASSERT_TRUE(view.ok());
  for (int i = 0; i < 20; ++i) {
    const Code code = wide.acquire(kWrite, 0, 0, Timeout::milliseconds(1)).code();
    EXPECT_TRUE(code == Code::no_capacity || code == Code::timed_out) << code_name(code);
  }
  // The two MiB that each attempt had reserved are free again.
  EXPECT_TRUE(wide.acquire(kWrite, 0, 2 * kMiB, Timeout::seconds(5)).ok());
  view->release();
  EXPECT_TRUE(wide.acquire(kWrite, 0, 0, Timeout::seconds(5)).ok());
}

}  // namespace
}  // namespace tiermem::test

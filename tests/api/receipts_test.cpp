// Where bytes are and why they moved, as a program can query it: real memory and a real directory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

using State = Whereabouts::State;
constexpr Place kNowhere{}, kDram{Kind::dram, 0}, kBlock{Kind::block, 0}, kFile{Kind::file, 0};

class Receipts : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& more = "") {
    return make_context("dram=16M; nvme=" + directory_.path() + ":256M" + more);
  }
  static Whereabouts why(const Buffer& buffer, std::uint64_t offset = 0) {
    auto where = buffer.context().why(buffer.handle(), offset);
    EXPECT_TRUE(where.ok()) << where.message();
    return where.ok() ? *where : Whereabouts();
  }
  static void overwrite(const Buffer& buffer) {
    for (std::uint64_t at = 0; at < buffer.size(); at += 2 * kMiB) {
      auto view = buffer.acquire(kDiscard, at, std::min(2 * kMiB, buffer.size() - at));
      ASSERT_TRUE(view.ok()) << view.message();
      fill(view->as<std::uint64_t>(), 1, at / 8);
    }
  }
  Directory directory_;
};

TEST_F(Receipts, follow_an_extent_down_and_up_again) {
  auto context = make();
  auto buffer = context->alloc(4 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_EQ(why(*buffer).state, State::zero);
  EXPECT_EQ(why(*buffer).last.reason, Reason::none);
  EXPECT_EQ(why(*buffer).since_ns, -1);

  overwrite(*buffer);
  Whereabouts where = why(*buffer, 2 * kMiB + 5);
  EXPECT_EQ(where.state, State::resident);
  EXPECT_EQ(where.place, (Place{Kind::dram, 0}));
  EXPECT_TRUE(where.dirty);
  EXPECT_EQ(where.last.reason, Reason::demand);
  EXPECT_EQ(where.last.from, kNowhere);

  ASSERT_TRUE(buffer->evict().ok());
  where = why(*buffer);
  EXPECT_EQ(where.state, State::in_slot);
  EXPECT_EQ(where.place.kind, Kind::block);
  EXPECT_FALSE(where.dirty);
  EXPECT_EQ(where.last.reason, Reason::asked);
  EXPECT_EQ(where.last.to, kNowhere) << "it was written, and then left";

  {
    auto view = buffer->acquire(kRead, 0, 2 * kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    where = why(*buffer);
    EXPECT_TRUE(where.pinned);
  }
  EXPECT_EQ(where.state, State::resident);
  EXPECT_EQ(where.last.from, kBlock);
  EXPECT_EQ(where.last.to, kDram);
  EXPECT_EQ(where.last.reason, Reason::demand);
  EXPECT_EQ(where.last.bytes, 2 * kMiB);
  EXPECT_EQ(where.last.offset, 0U);
  EXPECT_GE(where.last.requests, 1U);
  EXPECT_GE(where.last.depth, 1U);
  EXPECT_GT(where.last.ended_ns, where.last.begun_ns);
  EXPECT_GE(where.since_ns, 0);
  EXPECT_EQ(why(*buffer, 2 * kMiB).state, State::in_slot) << "the other extent did not come";
}

TEST_F(Receipts, tell_what_was_asked_for_from_what_was_fetched_ahead) {
  auto context = make();
  auto buffer = context->alloc(2 * kMiB);
  ASSERT_TRUE(buffer.ok());
  overwrite(*buffer);
  ASSERT_TRUE(buffer->evict().ok());
  const Access all = buffer->range();
  Op op;
  ASSERT_TRUE(context->prefetch({&all, 1}, 0, &op).ok());
  ASSERT_TRUE(op.wait().ok());
  EXPECT_EQ(why(*buffer).last.reason, Reason::prefetch);
}

TEST_F(Receipts, say_who_made_room) {
  auto context = make();
  auto buffer = context->alloc(64 * kMiB);
  ASSERT_TRUE(buffer.ok());
  overwrite(*buffer);
  unsigned gone = 0;
  for (std::uint64_t at = 0; at < buffer->size(); at += 2 * kMiB) {
    const Whereabouts where = why(*buffer, at);
    if (where.state == State::in_slot) {
      ++gone;
      EXPECT_TRUE(where.last.reason == Reason::room || where.last.reason == Reason::ahead)
          << static_cast<int>(where.last.reason);
    }
  }
  EXPECT_GE(gone, 24U);
}

TEST_F(Receipts, of_an_adopted_file_name_the_file) {
  const std::string path = directory_.path() + "/file";
  std::ofstream(path) << std::string(3 * kMiB, 'x');
  auto context = make();
  auto buffer = context->adopt_file(path.c_str(), 4097);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_EQ(why(*buffer).state, State::in_slot);
  auto view = buffer->acquire(kRead, 0, 100);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_EQ(why(*buffer).last.from, kFile);
  EXPECT_EQ(why(*buffer).last.to, kDram);
  EXPECT_EQ(why(*buffer).state, State::resident);
}

TEST_F(Receipts, and_counters_of_each_tier_are_those_of_the_context) {
  const std::string path = directory_.path() + "/file";
  std::ofstream(path) << std::string(3 * kMiB, 'x');
  auto context = make();
  auto buffer = context->alloc(8 * kMiB);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  overwrite(*buffer);
  ASSERT_TRUE(buffer->evict().ok());
  auto file = context->adopt_file(path.c_str());
  ASSERT_TRUE(file.ok()) << file.message();
  auto view = buffer->acquire(kRead, 0, 4 * kMiB);
  ASSERT_TRUE(view.ok()) << view.message();
  auto of_file = file->acquire(kRead, 0, kMiB);
  ASSERT_TRUE(of_file.ok()) << of_file.message();

  const Stats stats = context->stats();
  ASSERT_EQ(stats.tier_count, 3U);
  EXPECT_EQ(stats.tier({Kind::gpu, 0}), nullptr);
  const TierStats* const dram = stats.tier(kDram);
  const TierStats* const block = stats.tier(kBlock);
  const TierStats* const adopted = stats.tier(kFile);
  ASSERT_TRUE(dram != nullptr && block != nullptr && adopted != nullptr);
  EXPECT_EQ(dram->budget, stats.dram_budget);
  EXPECT_EQ(dram->used, stats.dram_used);
  EXPECT_EQ(dram->pinned, stats.dram_pinned);
  EXPECT_GE(dram->pinned, 4 * kMiB);
  EXPECT_EQ(dram->bytes_in, stats.host_bytes_in);
  EXPECT_EQ(dram->bytes_out, stats.host_bytes_out);
  EXPECT_EQ(block->budget, stats.block_budget);
  EXPECT_EQ(block->used, stats.block_used);
  EXPECT_EQ(block->bytes_in, stats.demoted);
  EXPECT_GE(block->bytes_out, 4 * kMiB);
  EXPECT_GE(adopted->bytes_out, kMiB);
  EXPECT_EQ(adopted->bytes_in, 0U);
  EXPECT_EQ(block->bytes_out + adopted->bytes_out, stats.promoted + stats.prefetched);
}

TEST_F(Receipts, of_a_mapped_buffer_in_parts_are_by_page) {
  auto context = make();
  auto buffer = context->alloc(kMiB, {.extent_bytes = 64 << 10, .flags = kMapped});
  if (!buffer.ok()) {
    GTEST_SKIP() << buffer.message();
  }
  auto at = buffer->address();
  ASSERT_TRUE(at.ok());
  std::fill_n(*at, kMiB, std::byte{1});
  ASSERT_TRUE(buffer->evict().ok());
  EXPECT_EQ(why(*buffer).state, State::in_slot);
  EXPECT_EQ((*at)[100], std::byte{1});
  const Whereabouts where = why(*buffer, 100);
  EXPECT_EQ(where.state, State::resident);
  EXPECT_EQ(where.last.reason, Reason::demand);
  EXPECT_GT(where.last.bytes, 0U);
}

TEST_F(Receipts, the_option_says_how_many_are_kept) {
  auto context = make("; receipts=0");
  auto buffer = context->alloc(2 * kMiB);
  ASSERT_TRUE(buffer.ok());
  overwrite(*buffer);
  EXPECT_EQ(why(*buffer).state, State::resident);
  EXPECT_EQ(why(*buffer).last.reason, Reason::none);
  auto text = context->stats_json();
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("\"from\":\"nowhere\",\"to\":\"dram\""), std::string::npos) << *text;
}

TEST_F(Receipts, refuse_what_is_no_byte_of_a_live_buffer) {
  auto context = make();
  auto buffer = context->alloc(kMiB);
  ASSERT_TRUE(buffer.ok());
  const Handle handle = buffer->handle();
  EXPECT_EQ(context->why(handle, kMiB).code(), Code::invalid_argument);
  EXPECT_TRUE(context->why(handle, kMiB - 1).ok());
  buffer->reset();
  EXPECT_EQ(context->why(handle, 0).code(), Code::stale_handle);
  ASSERT_TRUE(context->close().ok());
  EXPECT_EQ(context->why(handle, 0).code(), Code::shut_down);
  EXPECT_EQ(context->stats_json().code(), Code::shut_down);
}

TEST_F(Receipts, a_closed_context_leaves_its_counters_in_a_file) {
  const std::string path = directory_.path() + "/stats-%p.json";
  auto context = make("; stats_file=" + path);
  auto buffer = context->alloc(2 * kMiB);
  ASSERT_TRUE(buffer.ok());
  overwrite(*buffer);
  ASSERT_TRUE(buffer->evict().ok());
  buffer->reset();
  ASSERT_TRUE(context->close().ok());
  std::ifstream file(directory_.path() + "/stats-" + std::to_string(::getpid()) + ".json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("\"demoted\":2097152"), std::string::npos) << text;
  EXPECT_NE(text.find("\"from\":\"dram\",\"to\":\"block\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"reason\":\"asked\""), std::string::npos) << text;
  EXPECT_EQ(text.substr(0, 1), "{") << text;
  EXPECT_EQ(text.find_last_not_of('\n'), text.rfind('}')) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
}

}  // namespace
}  // namespace tiermem::test

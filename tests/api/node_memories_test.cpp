// Contexts with memories of NUMA nodes (`numa`). The tests name node 0 as a second memory behind
// DRAM: every machine has it. tests/rig runs them on other nodes.
#include <gtest/gtest.h>

#include <algorithm>
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

class NodeMemories : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* const named = std::getenv("TIERMEM_TEST_NODE")) {
      node_ = static_cast<std::uint16_t>(std::atoi(named));
    }
    auto probe = Context::create(spec("8M", "off"));
    if (!probe.ok()) {
      GTEST_SKIP() << probe.message();
    }
  }
  std::string spec(const std::string& dram, const std::string& nvme) const {
    return "dram=" + dram + "; numa=" + std::to_string(node_) + ":32M; nvme=" + nvme;
  }
  std::unique_ptr<Context> make(const std::string& dram, const std::string& more = "") {
    return make_context(spec(dram, directory_.path() + ":256M") + more);
  }
  Place node() const { return {Kind::numa, node_}; }
  static std::uint64_t used(const Context& context, Place place) {
    const Stats stats = context.stats();
    const TierStats* const tier = stats.tier(place);
    return tier != nullptr ? tier->used : 0;
  }
  std::uint16_t node_ = 0;
  Directory directory_;
};

TEST_F(NodeMemories, bytes_that_dram_has_no_room_for_go_to_the_node) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 32 * kMiB, "fits in both");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  EXPECT_LE(used(*context, kDram), 8 * kMiB);
  EXPECT_GE(used(*context, node()), 20 * kMiB);
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  const Stats stats = context->stats();
  EXPECT_EQ(stats.tier(node())->budget, 32 * kMiB);
  EXPECT_LE(stats.demoted, 4 * kMiB) << "the node had room, and the disk was not needed";
  buffer.reset();
  EXPECT_EQ(used(*context, {Kind::block, 0}), 0u);
}

TEST_F(NodeMemories, bytes_that_neither_has_room_for_go_to_the_disk) {
  for (const bool mapped : {false, true}) {
    SCOPED_TRACE(mapped);
    auto context = make("8M");
    ASSERT_NE(context, nullptr);
    const std::uint32_t flags = mapped ? std::uint32_t{kMapped} : 0;
    auto made = context->alloc(96 * kMiB, {.flags = flags, .label = "large"});
    if (mapped && made.code() == Code::unsupported) {
      continue;  // This machine has no mapped buffers.
    }
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(write_pattern(*made, 1).ok());
    EXPECT_EQ(wrong_words(*made, 1), 0u);
    ASSERT_TRUE(write_pattern(*made, 2).ok());
    EXPECT_EQ(wrong_words(*made, 2), 0u);
    EXPECT_LE(used(*context, kDram), 8 * kMiB);
    EXPECT_LE(used(*context, node()), 32 * kMiB);
    EXPECT_GT(context->stats().demoted, 0u);
  }
}

TEST_F(NodeMemories, the_budget_of_each_memory_is_set_by_itself) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 40 * kMiB, "in both");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  ASSERT_TRUE(context->set_budget(node(), 8 * kMiB).ok());
  ASSERT_TRUE(context->set_budget(kDram, 4 * kMiB).ok());
  EXPECT_LE(used(*context, node()), 8 * kMiB);
  EXPECT_LE(used(*context, kDram), 4 * kMiB);
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  const Status unknown = context->set_budget({Kind::numa, 999}, 8 * kMiB);
  EXPECT_EQ(unknown.code(), Code::unavailable);
}

TEST_F(NodeMemories, why_names_the_memory) {
  auto context = make("4M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 24 * kMiB, "told");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  bool on_node = false;
  for (std::uint64_t at = 0; at < buffer.size(); at += kMiB) {
    const auto where = context->why(buffer.handle(), at);
    ASSERT_TRUE(where.ok()) << where.message();
    on_node = on_node || where->place == node();
  }
  EXPECT_TRUE(on_node);
}

TEST_F(NodeMemories, a_node_that_the_machine_lacks_is_refused) {
  const auto context = Context::create("dram=8M; numa=1023:32M; nvme=off");
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.code(), Code::invalid_argument) << context.message();
  EXPECT_NE(std::string(context.message()).find("1023"), std::string::npos) << context.message();
}

// Returns whether each MiB of the buffer is in the memory at the place.
bool all_in(Context& context, const Buffer& buffer, Place place) {
  for (std::uint64_t at = 0; at < buffer.size(); at += kMiB) {
    const auto where = context.why(buffer.handle(), at);
    if (!where.ok() || where->place != place) {
      return false;
    }
  }
  return true;
}

TEST_F(NodeMemories, figures_of_each_memory_tell_what_came_and_went) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  Buffer moves = make_buffer(*context, 2 * kMiB, "moves");
  ASSERT_TRUE(write_pattern(moves, 1).ok());
  ASSERT_TRUE(moves.prefer(node()).ok());
  for (int i = 0; i < 1000 && !all_in(*context, moves, node()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Stats stats = context->stats();
  EXPECT_EQ(stats.tier(node())->bytes_in, 2 * kMiB);
  EXPECT_EQ(stats.tier(kDram)->bytes_out, 2 * kMiB);
  Buffer buffer = make_buffer(*context, 30 * kMiB, "counted");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  ASSERT_TRUE(buffer.evict().ok());
  ASSERT_TRUE(write_pattern(buffer, 2).ok());
  EXPECT_EQ(wrong_words(buffer, 2), 0u);
  stats = context->stats();
  const TierStats& dram = *stats.tier(kDram);
  const TierStats& far = *stats.tier(node());
  const TierStats& drive = *stats.tier({Kind::block, 0});
  EXPECT_GE(far.bytes_out, 16 * kMiB) << "it was written to the drive";
  // Each byte that leaves a tier comes to another one.
  EXPECT_EQ(dram.bytes_in + far.bytes_in + drive.bytes_in,
            dram.bytes_out + far.bytes_out + drive.bytes_out);
  EXPECT_LE(dram.bytes_in, 64 * kMiB);
  EXPECT_EQ(stats.dram_used, dram.used) << "the node is another tier";
  EXPECT_EQ(stats.dram_budget, 8 * kMiB);
}

TEST_F(NodeMemories, buffer_prefers_the_node_then_its_bytes_are_there_and_dram_stays_free) {
  auto context = make("32M");
  ASSERT_NE(context, nullptr);
  for (const bool mapped : {false, true}) {
    SCOPED_TRACE(mapped);
    const std::uint32_t flags = mapped ? std::uint32_t{kMapped} : 0;
    auto made = context->alloc(8 * kMiB, {.flags = flags, .preferred = node(), .label = "far"});
    if (mapped && made.code() == Code::unsupported) {
      continue;  // This machine has no mapped buffers.
    }
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(write_pattern(*made, 1).ok());
    EXPECT_TRUE(all_in(*context, *made, node()));
    ASSERT_TRUE(made->evict().ok());
    EXPECT_EQ(wrong_words(*made, 1), 0u);
    EXPECT_TRUE(all_in(*context, *made, node())) << "it came back from the disk";
  }
  Buffer plain = make_buffer(*context, 8 * kMiB, "plain");
  ASSERT_TRUE(write_pattern(plain, 2).ok());
  EXPECT_TRUE(all_in(*context, plain, kDram));
}

TEST_F(NodeMemories, objects_in_dram_are_refused_when_it_is_full_and_never_go_to_the_node) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  std::vector<void*> objects;
  auto made = context->malloc_at(kDram, 200'000);
  for (; made.ok() && objects.size() < 100; made = context->malloc_at(kDram, 200'000)) {
    objects.push_back(*made);
  }
  EXPECT_EQ(made.code(), Code::no_capacity);
  EXPECT_LE(used(*context, kDram), 8 * kMiB);
  EXPECT_EQ(used(*context, node()), 0u);
  for (void* const each : objects) {
    EXPECT_TRUE(context->free_ptr(each).ok());
  }
}

TEST_F(NodeMemories, object_on_the_node_has_a_size_and_moves_to_dram_when_it_grows_there) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  auto made = context->calloc_at(node(), 1000, 8);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_GT(used(*context, node()), 0u);
  const std::uint64_t in_dram = used(*context, kDram);
  auto* const words = static_cast<std::uint64_t*>(*made);
  EXPECT_EQ(std::count(words, words + 1000, 0u), 1000);
  words[999] = 7;
  auto grown = context->realloc_at(kDram, *made, 1 << 20);
  ASSERT_TRUE(grown.ok()) << grown.message();
  EXPECT_EQ(static_cast<std::uint64_t*>(*grown)[999], 7u);
  EXPECT_GT(used(*context, kDram), in_dram);
  EXPECT_TRUE(context->free_ptr(*grown).ok());
  // The thread keeps small objects of the node. No other place gets them.
  const auto kept = context->malloc_at(node(), 64);
  ASSERT_TRUE(kept.ok());
  ASSERT_TRUE(context->free_ptr(*kept).ok());
  for (const Place absent : {Place{Kind::numa, 999}, Place{Kind::pmem, node_}, Place{Kind::gpu, 0},
                             Place{Kind{256 + static_cast<int>(Kind::numa)}, node_}}) {
    EXPECT_EQ(context->malloc_at(absent, 64).code(), Code::unavailable)
        << static_cast<int>(absent.kind) << ' ' << absent.index;
  }
}

constexpr std::uint64_t kPart = 256 * 1024;

// Returns the share of the buffer's parts that are in the memory at the place.
double share_in(Context& context, const Buffer& buffer, Place place) {
  double there = 0;
  for (std::uint64_t at = 0; at < buffer.size(); at += kPart) {
    const auto where = context.why(buffer.handle(), at);
    there += where.ok() && where->place == place ? kPart : 0;
  }
  return there / static_cast<double>(buffer.size());
}

// The machine may tell bandwidths: then DRAM may have up to 32 of 33 extents.
TEST_F(NodeMemories, buffer_is_interleaved_then_each_memory_has_its_share_of_the_extents) {
  auto context = make_context("dram=64M; numa=" + std::to_string(node_) + ":64M; nvme=off");
  ASSERT_NE(context, nullptr);
  for (const bool mapped : {false, true}) {
    SCOPED_TRACE(mapped);
    const std::uint32_t flags = kInterleaved | (mapped ? std::uint32_t{kMapped} : 0);
    auto made =
        context->alloc(48 * kMiB, {.extent_bytes = kPart, .flags = flags, .label = "spread"});
    if (mapped && made.code() == Code::unsupported) {
      continue;  // This machine has no mapped buffers.
    }
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(write_pattern(*made, 1).ok());
    const double on_node = share_in(*context, *made, node());
    EXPECT_GT(on_node, 0.01);
    EXPECT_GT(share_in(*context, *made, kDram), 0.01);
    EXPECT_EQ(wrong_words(*made, 1), 0u);
    EXPECT_NEAR(share_in(*context, *made, node()), on_node, 0.02) << "reads do not move it";
  }
  const auto both =
      context->alloc(kMiB, {.flags = kInterleaved, .preferred = node(), .label = "contradiction"});
  EXPECT_EQ(both.code(), Code::invalid_argument);
  EXPECT_NE(std::string(both.message()).find("'contradiction' is interleaved"), std::string::npos)
      << both.message();
}

TEST_F(NodeMemories, hint_names_a_memory_then_the_bytes_go_there) {
  auto context = make("32M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 8 * kMiB, "moves");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  ASSERT_TRUE(all_in(*context, buffer, kDram));
  const auto goes_to = [&](Place place) {
    ASSERT_TRUE(buffer.prefer(place).ok());
    for (int i = 0; i < 1000 && !all_in(*context, buffer, place); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(all_in(*context, buffer, place));
    EXPECT_EQ(wrong_words(buffer, 1), 0u);
  };
  goes_to(node());
  goes_to(kDram);
}

TEST_F(NodeMemories, context_lacks_the_preferred_memory_then_the_error_names_those_it_has) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  const Place absent{Kind::numa, 999};
  const auto names_all = [&](std::string_view said) {
    for (const std::string& part :
         {std::string("'far'"), std::string("numa 999"), "dram, numa " + std::to_string(node_)}) {
      EXPECT_NE(said.find(part), std::string_view::npos) << said;
    }
  };
  const auto made = context->alloc(kMiB, {.preferred = absent, .label = "far"});
  EXPECT_EQ(made.code(), Code::unavailable);
  names_all(made.message());
  const Buffer buffer = make_buffer(*context, kMiB, "far");
  const Status hinted = buffer.prefer(absent);
  EXPECT_EQ(hinted.code(), Code::unavailable);
  names_all(hinted.message());
  EXPECT_TRUE(buffer.prefer({Kind::any, 0}).ok());
}

}  // namespace
}  // namespace tiermem::test

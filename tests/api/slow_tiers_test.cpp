// Contexts with a second slot tier (`slow`): bytes that the first tier has no room for, budgets of
// both, and what the counters say of them.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr Place kFast{Kind::block, 0};
constexpr Place kSlow{Kind::block, 1};

class SlowTiers : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& fast, const std::string& more = "") {
    return make_context("dram=8M; nvme=" + fast_.path() + ":" + fast + "; slow=" + slow_.path() +
                        ":256M" + more);
  }
  static std::uint64_t used(const Context& context, Place place) {
    const Stats stats = context.stats();
    const TierStats* const tier = stats.tier(place);
    return tier != nullptr ? tier->used : 0;
  }
  Directory fast_, slow_;
};

TEST_F(SlowTiers, bytes_that_the_first_tier_has_no_room_for_go_to_the_second) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 64 * kMiB, "large");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  EXPECT_GE(used(*context, kFast), 12 * kMiB) << "the first tier is filled first";
  EXPECT_LE(used(*context, kFast), 16 * kMiB);
  EXPECT_GE(used(*context, kSlow), 32 * kMiB);
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  ASSERT_TRUE(write_pattern(buffer, 2).ok()) << "each extent keeps its slot";
  EXPECT_EQ(wrong_words(buffer, 2), 0u);
  const Stats stats = context->stats();
  EXPECT_GT(stats.tier(kFast)->bytes_in, 0u);
  EXPECT_GT(stats.tier(kSlow)->bytes_in, 0u);
  EXPECT_GT(stats.tier(kSlow)->bytes_out, 0u);
  buffer.reset();
  EXPECT_TRUE(eventually([&] { return used(*context, kFast) + used(*context, kSlow) == 0; }));
}

TEST_F(SlowTiers, with_room_in_the_first_tier_the_second_gets_nothing) {
  auto context = make("256M");
  ASSERT_NE(context, nullptr);
  Buffer buffer = make_buffer(*context, 32 * kMiB, "fits");
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
  EXPECT_EQ(used(*context, kSlow), 0u);
}

TEST_F(SlowTiers, new_bytes_go_to_the_fast_tier_although_it_was_filled_before) {
  auto context = make("32M");
  ASSERT_NE(context, nullptr);
  Buffer old = make_buffer(*context, 32 * kMiB, "old");
  ASSERT_TRUE(write_pattern(old, 1).ok());
  Buffer recent = make_buffer(*context, 32 * kMiB, "recent");
  const std::uint64_t before = context->stats().tier(kFast)->bytes_in;
  std::uint64_t seed = 1;
  // Destages are in the background, and only they read from the fast tier so far.
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(write_pattern(recent, ++seed).ok());
    const Stats stats = context->stats();
    return stats.tier(kFast)->bytes_out > 0 && stats.tier(kFast)->bytes_in > before;
  }));
  EXPECT_LE(used(*context, kFast), 32 * kMiB);
  EXPECT_EQ(wrong_words(recent, seed), 0u);
  EXPECT_EQ(wrong_words(old, 1), 0u);
  old.reset();
  recent.reset();
  // A destage that was under way gives its slots back when its read or write has ended.
  EXPECT_TRUE(eventually([&] { return used(*context, kFast) + used(*context, kSlow) == 0; }));
}

TEST_F(SlowTiers, the_budget_of_each_tier_is_set_by_itself) {
  auto context = make("16M");
  ASSERT_NE(context, nullptr);
  ASSERT_TRUE(context->set_budget(kSlow, 8 * kMiB).ok());
  Buffer buffer = make_buffer(*context, 64 * kMiB, "large");
  std::uint64_t written = 0;
  const Status refusal = write_pattern(buffer, 1, Timeout::seconds(5), &written);
  ASSERT_EQ(refusal.code(), Code::no_capacity);
  EXPECT_SAYS(refusal, "block tier");
  EXPECT_LE(used(*context, kFast), 16 * kMiB);
  EXPECT_LE(used(*context, kSlow), 8 * kMiB);
  ASSERT_TRUE(context->set_budget(kSlow, 256 * kMiB).ok());
  EXPECT_TRUE(write_pattern(buffer, 2).ok());
  EXPECT_EQ(wrong_words(buffer, 2), 0u);
}

TEST_F(SlowTiers, a_second_context_uses_the_same_directories_anew) {
  for (const std::uint64_t seed : {1, 2}) {
    auto context = make("16M");
    ASSERT_NE(context, nullptr);
    Buffer buffer = make_buffer(*context, 48 * kMiB, "again");
    ASSERT_TRUE(write_pattern(buffer, seed).ok());
    EXPECT_EQ(wrong_words(buffer, seed), 0u);
  }
}

TEST_F(SlowTiers, mapped_bytes_go_to_both_tiers_and_come_back) {
  auto context = make("8M");
  ASSERT_NE(context, nullptr);
  auto buffer = context->alloc(48 * kMiB, {.flags = kMapped, .label = "mapped"});
  if (!buffer.ok()) {
    GTEST_SKIP() << buffer.message();
  }
  auto* const words = reinterpret_cast<std::uint64_t*>(*buffer->address());
  constexpr std::uint64_t kWords = 48 * kMiB / sizeof(std::uint64_t);
  for (std::uint64_t i = 0; i < kWords; i += 64) {
    words[i] = i * 0x9E3779B97F4A7C15u + 1;
  }
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kWords; i += 64) {
    wrong += words[i] != i * 0x9E3779B97F4A7C15u + 1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(SlowOption, wrong_settings_are_refused_by_name) {
  Directory fast, slow;
  const std::string dram = "dram=8M; nvme=" + fast.path() + ":16M; slow=";
  const auto refused_with = [](const std::string& spec, const std::string& word) {
    const auto context = Context::create(spec);
    return !context.ok() && says(context.message(), word);
  };
  const std::string detour = fast.path() + "/../" + fast.path().substr(fast.path().rfind('/') + 1);
  EXPECT_TRUE(refused_with(dram + slow.path(), "needs a size"));
  EXPECT_TRUE(refused_with(dram + fast.path() + ":1G", "is a tier already"));
  EXPECT_TRUE(refused_with(dram + detour + ":1G", "is a tier already"));
  EXPECT_TRUE(refused_with(dram + slow.path() + ":1G," + slow.path() + ":1G", "named twice"));
  EXPECT_TRUE(refused_with("dram=8M; nvme=off; slow=" + slow.path() + ":1G", "nvme="));
}

}  // namespace
}  // namespace tiermem::test

// Homes and lists of one frame size, without budget or windows.
#include "tier/frame_pool.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A worker populates the frame, and the mover caches it when it is returned.
void keep(FramePool& pool, std::uint32_t index, std::uint64_t stamp) {
  pool.frame(index).pages = true;
  pool.frame(index).tag = pool.frame(index).owner;
  pool.cache(index, stamp);
}

TEST(FramePool, fresh_frames_have_homes_of_their_own) {
  FramePool pool(2 * kMiB, {});
  std::set<std::byte*> homes;
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t index = pool.take_fresh(0);
    ASSERT_NE(index, kNoFrame);
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(pool.home(index)) % (2 * kMiB), 0U);
    homes.insert(pool.home(index));
  }
  EXPECT_EQ(homes.size(), 100U);
  EXPECT_TRUE(pool.test_consistent());
}

TEST(FramePool, growing_merges_with_the_homes_before) {
  FramePool pool(2 * kMiB, {});
  pool.take_fresh(0);
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer makes mappings of its own";
#endif
  const std::uint64_t before = host::map_count();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_NE(pool.take_fresh(0), kNoFrame);
  }
  EXPECT_LE(host::map_count(), before + 10);
}

TEST(FramePool, frames_without_memory_have_no_home) {
  FramePool pool(4096, {.memory = false});
  const std::uint32_t index = pool.take_fresh(3);
  ASSERT_NE(index, kNoFrame);
  EXPECT_EQ(pool.home(index), nullptr);
  EXPECT_EQ(pool.frame(index).owner, 3U);
}

TEST(FramePool, cached_frames_of_the_domain_go_first_then_the_coldest) {
  FramePool pool(4096, {});
  const std::uint32_t a = pool.take_fresh(1);
  const std::uint32_t b = pool.take_fresh(2);
  const std::uint32_t c = pool.take_fresh(2);
  keep(pool, a, 1);
  keep(pool, b, 2);
  keep(pool, c, 3);
  EXPECT_EQ(pool.take_cached(2), c) << "the warmest of its own";
  EXPECT_EQ(pool.take_cached(5), a);
  EXPECT_EQ(pool.take_cached(5), b);
  EXPECT_EQ(pool.take_cached(5), kNoFrame);
  EXPECT_TRUE(pool.test_consistent());
}

TEST(FramePool, a_frame_given_back_is_the_next_fresh_one) {
  FramePool pool(4096, {});
  const std::uint32_t a = pool.take_fresh(1);
  pool.take_fresh(1);
  pool.give_back(a);
  EXPECT_EQ(pool.take_fresh(2), a);
  EXPECT_EQ(pool.frame(a).owner, 2U);
}

// Property: the coldest frame is always the one that was cached longest ago, and lists and states
// agree.
TEST(FramePool, random_caching_keeps_the_order_of_age) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  FramePool pool(4096, {});
  std::vector<std::uint32_t> held;
  std::vector<std::uint32_t> aged;  // Oldest first.
  for (std::uint64_t round = 1; round < 20'000; ++round) {
    const unsigned dice = random() % 4;
    if (dice == 0) {
      held.push_back(pool.take_fresh(random() % 3));
    } else if (dice == 1 && !held.empty()) {
      const std::size_t which = random() % held.size();
      keep(pool, held[which], round);
      aged.push_back(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (dice == 2 && !aged.empty()) {
      const std::uint32_t index = pool.take_cached(random() % 4);
      ASSERT_NE(index, kNoFrame);
      ASSERT_EQ(std::erase(aged, index), 1U);
      held.push_back(index);
    } else if (!aged.empty()) {
      ASSERT_EQ(pool.coldest(), aged.front());
      const std::uint32_t index = pool.take_coldest();
      ASSERT_EQ(index, aged.front());
      aged.erase(aged.begin());
      pool.frame(index).pages = false;
      pool.give_back(index);
    }
  }
  EXPECT_TRUE(pool.test_consistent());
  EXPECT_EQ(pool.test_bytes(Frame::State::in_use), held.size() * 4096);
}

}  // namespace
}  // namespace tiermem

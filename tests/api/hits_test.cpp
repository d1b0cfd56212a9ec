// Resident extents are acquired without the mover, whatever the buffer's shape. Stats::misses
// counts requests to the mover, because an unnecessary request is slower but otherwise looks the
// same.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kExtent = 4096;

class Hits : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  Buffer resident(std::uint64_t extents, std::uint64_t seed) {
    auto buffer = context->alloc(extents * kExtent, {.extent_bytes = kExtent});
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kDiscard);
    EXPECT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), seed);
    view->release();
    return std::move(buffer).value();
  }
  std::uint64_t misses() { return context->stats().misses; }
  std::unique_ptr<Context> context = make_context("dram=64M; nvme=off");
};

TEST_P(Hits, every_range_of_what_is_there_makes_no_request) {
  const std::uint64_t extents = GetParam();
  Buffer buffer = resident(extents, 1);
  const std::uint64_t before = misses();
  for (const std::uint32_t mode : {1u * kRead, 1u * kWrite, 1u * kRead | kWrite}) {
    for (const auto& [offset, length] : {std::pair<std::uint64_t, std::uint64_t>{0, 0},
                                         {0, 8},
                                         {(extents - 1) * kExtent, kExtent},
                                         {extents * kExtent - 8, 8},
                                         {8, extents * kExtent - 16}}) {
      auto view = buffer.acquire(mode, offset, length);
      ASSERT_TRUE(view.ok()) << view.message();
      EXPECT_EQ(wrong(view->as<std::uint64_t>(), 1, offset / 8), 0u);
    }
  }
  EXPECT_EQ(misses(), before);
}

TEST_P(Hits, a_list_of_what_is_there_makes_no_request) {
  Buffer one = resident(GetParam(), 1);
  Buffer two = resident(GetParam(), 2);
  const std::uint64_t before = misses();
  const std::array list = {one.range(0, 0, kRead), two.range(0, 0, kWrite), one.range(0, 0, kRead)};
  std::array<ViewRecord, 3> views;
  ASSERT_TRUE(context->acquire(list, Timeout::forever(), views).ok());
  EXPECT_EQ(std::memcmp(views[0].data, views[2].data, kExtent), 0);
  ASSERT_TRUE(context->release(views).ok());
  EXPECT_EQ(misses(), before);
}

TEST_P(Hits, the_next_life_of_a_buffer_makes_no_request) {
  { Buffer first = resident(GetParam(), 1); }
  const std::uint64_t before = misses();
  for (std::uint64_t life = 2; life < 5; ++life) {
    auto buffer = context->alloc(GetParam() * kExtent, {.extent_bytes = kExtent});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto half = buffer->acquire(kWrite, 0, GetParam() * kExtent / 2);
    ASSERT_TRUE(half.ok()) << half.message();
    for (const std::uint64_t word : half->as<std::uint64_t>()) {
      ASSERT_EQ(word, 0u);
    }
    half->release();
    auto view = buffer->acquire(kDiscard);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), life);
  }
  EXPECT_EQ(misses(), before);
}

INSTANTIATE_TEST_SUITE_P(Extents, Hits, ::testing::Values(1, 2, 3, 16, 63, 64));

// One extent more than a spare may have: the mover frees the buffer and creates a new one.
TEST(HitsOf, large_buffers_are_no_spares) {
  auto context = make_context("dram=64M; nvme=off");
  for (int life = 0; life < 3; ++life) {
    const std::uint64_t before = context->stats().misses;
    auto buffer = context->alloc(65 * kExtent, {.extent_bytes = kExtent});
    ASSERT_TRUE(buffer.ok());
    ASSERT_TRUE(buffer->acquire(kDiscard).ok());
    EXPECT_EQ(context->stats().misses, before + 1);
  }
}

// A held view does not block other readers. Acquiring and releasing do not involve the mover.
TEST(HitsOf, readers_share_and_release_without_the_mover) {
  auto context = make_context("dram=64M; nvme=off");
  auto buffer = context->alloc(8 * kExtent, {.extent_bytes = kExtent});
  ASSERT_TRUE(write_pattern(*buffer, 1).ok());
  const Stats before = context->stats();
  std::vector<View> views;
  for (int i = 0; i < 1000; ++i) {
    auto view = buffer->acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    views.push_back(std::move(view).value());
  }
  views.clear();
  const Stats after = context->stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_LE(after.steps, before.steps + 50) << "no request waits for a released pin";
}

}  // namespace
}  // namespace tiermem::test

// Small buffers that the mover creates ahead for a program that allocates many. They behave like
// any other buffer, and take no memory from others.
#include <gtest/gtest.h>

#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class StockedBuffers : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  std::uint64_t bytes() const { return GetParam(); }
  std::unique_ptr<Context> context(const std::string& dram) {
    return make_context("dram=" + dram + "; nvme=" + directory_.path() + ":1G");
  }
  Directory directory_;
};

TEST_P(StockedBuffers, of_many_that_are_filled_few_visit_the_mover) {
  auto context = this->context("64M");
  const std::uint64_t count = 48 * kMiB / bytes();
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto buffer = context->alloc(bytes());
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kDiscard);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), i);
    buffers.push_back(std::move(*buffer));
  }
  EXPECT_LT(context->stats().misses, count / 2);
}

TEST_P(StockedBuffers, every_byte_comes_back_when_they_are_more_than_memory_holds) {
  auto context = this->context("16M");
  const std::uint64_t count = 64 * kMiB / bytes();
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto buffer = context->alloc(bytes());
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto view = buffer->acquire(kDiscard);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), i);
    buffers.push_back(std::move(*buffer));
  }
  EXPECT_GT(context->stats().demoted, 32 * kMiB);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto view = buffers[i].acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    ASSERT_EQ(wrong(view->as<std::uint64_t>(), i), 0u) << i;
  }
}

TEST_P(StockedBuffers, read_as_zeros_before_they_are_written) {
  auto context = this->context("16M");
  for (std::uint64_t i = 0; i < 32 * kMiB / bytes(); ++i) {
    auto buffer = context->alloc(bytes());
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    {
      auto view = buffer->acquire(kRead);
      ASSERT_TRUE(view.ok()) << view.message();
      for (const std::uint64_t word : view->as<const std::uint64_t>()) {
        ASSERT_EQ(word, 0u);
      }
    }
    auto view = buffer->acquire(kWrite);
    ASSERT_TRUE(view.ok()) << view.message();
    // The next buffer would show these bytes if it were not cleared.
    fill(view->as<std::uint64_t>(), ~i);
  }
}

TEST_P(StockedBuffers, those_that_nobody_touches_take_little_memory) {
  auto context = this->context("64M");
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 64 * kMiB / bytes(); ++i) {
    buffers.push_back(*context->alloc(bytes()));
  }
  EXPECT_LE(context->stats().dram_used, 12 * kMiB);
}

TEST_P(StockedBuffers, are_not_counted_before_they_are_allocated) {
  auto context = this->context("64M");
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 100; ++i) {
    buffers.push_back(*context->alloc(bytes()));
    EXPECT_EQ(context->stats().buffers, i + 1);
    EXPECT_EQ(context->stats().extents, i + 1);
  }
}

TEST_P(StockedBuffers, give_their_memory_to_whoever_needs_it) {
  auto context = this->context("16M");
  {
    std::vector<Buffer> small;
    for (int i = 0; i < 64; ++i) {
      small.push_back(*context->alloc(bytes()));
      auto view = small.back().acquire(kDiscard);
      ASSERT_TRUE(view.ok()) << view.message();
      fill(view->as<std::uint64_t>(), 1);
    }
  }
  auto large = context->alloc(14 * kMiB);
  auto view = large->acquire(kDiscard);
  ASSERT_TRUE(view.ok()) << view.message();
}

INSTANTIATE_TEST_SUITE_P(sizes, StockedBuffers, ::testing::Values(4096, 64 << 10, 256 << 10),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace
}  // namespace tiermem::test

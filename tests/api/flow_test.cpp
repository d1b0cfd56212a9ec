// Bytes that move in addition to the requested ones: the counters host_bytes_in, host_bytes_out and
// demanded, in runs where the test knows each byte. Real memory, a real directory.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kExtent = 2 * kMiB;
constexpr std::uint64_t kPage = 4096;

class Flow : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = make_context("dram=64M; nvme=" + directory_.path() + ":256M");
  }
  /// Creates a buffer that is not in memory, and resets the counting.
  Buffer below(std::uint64_t bytes, const BufferOptions& options = {}) {
    auto made = context_->alloc(bytes, options);
    EXPECT_TRUE(made.ok()) << made.message();
    Buffer buffer = made.ok() ? std::move(made).value() : Buffer();
    EXPECT_TRUE(write_pattern(buffer, 1).ok());
    EXPECT_TRUE(buffer.evict().ok());
    before_ = context_->stats();
    return buffer;
  }
  /// Returns the increase of a counter since the reset.
  std::uint64_t more(std::uint64_t Stats::*counter) const {
    return context_->stats().*counter - before_.*counter;
  }
  static void use(const Buffer& buffer, std::uint32_t mode, std::uint64_t offset,
                  std::uint64_t length) {
    auto view = buffer.acquire(mode, offset, length);
    ASSERT_TRUE(view.ok()) << view.message();
    if (mode != kRead) {
      fill(view->as<std::uint64_t>(), 2);
    }
  }
  Directory directory_;
  std::unique_ptr<Context> context_;
  Stats before_;
};

TEST_F(Flow, what_is_demanded_is_the_range_and_what_moves_are_its_extents) {
  const Buffer buffer = below(8 * kExtent);
  for (int round = 0; round < 2; ++round) {  // In the second round all of it is resident.
    for (std::uint64_t i = 0; i < 3; ++i) {
      use(buffer, kRead, i * kExtent + 8 * i, kPage);
    }
  }
  EXPECT_EQ(more(&Stats::demanded), 3 * kPage);
  EXPECT_EQ(more(&Stats::host_bytes_in), 3 * kExtent);
  use(buffer, kRead, 5 * kExtent - 100, 300);  // Spans two extents.
  EXPECT_EQ(more(&Stats::demanded), 3 * kPage + 300);
  EXPECT_EQ(more(&Stats::host_bytes_in), 5 * kExtent);
  use(buffer, kRead, 2 * kExtent, 2 * kExtent);  // One of the two extents is resident.
  EXPECT_EQ(more(&Stats::demanded), 3 * kPage + 300 + kExtent);
  EXPECT_EQ(more(&Stats::host_bytes_in), 6 * kExtent);
  EXPECT_EQ(more(&Stats::host_bytes_out), 0U);
}

TEST_F(Flow, what_was_changed_leaves_and_what_was_not_does_not) {
  const Buffer buffer = below(4 * kExtent);
  use(buffer, kWrite, kExtent, 8);
  use(buffer, kRead, 3 * kExtent, 8);
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_EQ(more(&Stats::demanded), 16U);
  EXPECT_EQ(more(&Stats::host_bytes_in), 2 * kExtent);
  EXPECT_GT(more(&Stats::host_bytes_out), 0U);
  EXPECT_LE(more(&Stats::host_bytes_out), kExtent);
  EXPECT_EQ(more(&Stats::host_bytes_out), more(&Stats::demoted));
}

TEST_F(Flow, zeros_and_what_is_overwritten_are_not_demanded) {
  const Buffer buffer = below(2 * kExtent);
  auto fresh = context_->alloc(2 * kExtent);
  ASSERT_TRUE(fresh.ok()) << fresh.message();
  use(*fresh, kWrite, 0, 2 * kExtent);
  use(buffer, kDiscard, 0, 2 * kExtent);
  EXPECT_EQ(more(&Stats::demanded), 0U);
  EXPECT_EQ(more(&Stats::host_bytes_in), 0U);
}

TEST_F(Flow, what_a_prefetch_brought_is_not_demanded_and_its_waste_is_told) {
  const Buffer buffer = below(8 * kExtent);
  const Access half = buffer.range(0, 4 * kExtent);
  Op op;
  ASSERT_TRUE(context_->prefetch({&half, 1}, 0, &op).ok());
  ASSERT_TRUE(op.wait().ok());
  use(buffer, kRead, 0, kPage);
  use(buffer, kRead, 2 * kExtent, kPage);
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_EQ(more(&Stats::demanded), 0U);
  EXPECT_EQ(more(&Stats::host_bytes_in), 4 * kExtent);
  EXPECT_EQ(more(&Stats::prefetched), 4 * kExtent);
  EXPECT_EQ(more(&Stats::prefetched_unused), 2 * kExtent);
}

// Property: each byte of a whole extent that arrives was either demanded or prefetched, also if a
// request waits for a prefetch in progress.
TEST_F(Flow, each_byte_is_counted_once_however_it_came) {
  const Buffer buffer = below(16 * kExtent);
  for (std::uint64_t round = 1; round <= 8; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) {
      if (i + 1 < 16) {
        ASSERT_TRUE(buffer.prefetch((i + 1) * kExtent, kExtent).ok());
      }
      use(buffer, kRead, i * kExtent, kExtent);
    }
    ASSERT_TRUE(buffer.evict().ok());
    EXPECT_EQ(more(&Stats::host_bytes_in), round * 16 * kExtent);
    EXPECT_EQ(more(&Stats::demanded) + more(&Stats::prefetched), round * 16 * kExtent);
    EXPECT_EQ(more(&Stats::prefetched_unused), 0U);
  }
  EXPECT_GT(more(&Stats::prefetched), 0U);
}

TEST_F(Flow, a_gather_demands_rows_and_reads_blocks) {
  const Buffer table = below(8 * kExtent, {.advice = Advice::random});
  const std::vector<std::uint64_t> rows = {3, 3, 60'000};  // Two of them are the same row.
  std::array<std::byte, 3 * 256> bytes;
  ASSERT_TRUE(table.gather(256, rows, bytes.data()).ok());
  EXPECT_EQ(more(&Stats::demanded), 3 * 256U);
  EXPECT_EQ(more(&Stats::gather_bytes), 2 * kPage);
  EXPECT_EQ(more(&Stats::host_bytes_in), 2 * kPage);
}

TEST_F(Flow, a_touch_demands_a_page) {
  auto made = context_->alloc(64 * kMiB, {.extent_bytes = 64 << 10, .flags = kMapped});
  if (made.code() == Code::unsupported) {
    GTEST_SKIP() << made.message();
  }
  ASSERT_TRUE(made.ok()) << made.message();
  auto address = made->address();
  ASSERT_TRUE(address.ok()) << address.message();
  fill({reinterpret_cast<std::uint64_t*>(*address), 16 * kMiB / 8}, 1);
  ASSERT_TRUE(made->evict().ok());
  before_ = context_->stats();
  std::uint64_t touches = 0;
  for (const std::uint64_t page : {17U, 2000U, 911U, 3333U}) {  // The steps differ in width.
    EXPECT_EQ(*reinterpret_cast<volatile std::uint64_t*>(*address + page * kPage),
              word_at(1, page * kPage / 8));
    ++touches;
  }
  EXPECT_EQ(*reinterpret_cast<volatile std::uint64_t*>(*address + 40 * kMiB),
            0U);  // Never written.
  EXPECT_EQ(more(&Stats::demanded), touches * kPage);
  EXPECT_GE(more(&Stats::host_bytes_in), touches * kPage);
  EXPECT_EQ(more(&Stats::host_bytes_in), more(&Stats::promoted) + more(&Stats::prefetched));
}

}  // namespace
}  // namespace tiermem::test

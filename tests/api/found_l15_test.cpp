// Fault L15: a buffer cost memory for each of its extents when it was allocated. Now the records of
// an extent cost memory only from its first use on, and are charged to the budget.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/found.hpp"
#include "support/mappings.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// Returns the number of page faults of this process. The kernel's count does not depend on the load
// of the machine.
std::uint64_t faults() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<std::uint64_t>(used.ru_minflt);
}

struct RecordsTest : ::testing::Test {
  void SetUp() override {
    if (kSanitized) {
      GTEST_SKIP() << "a sanitizer has memory of its own for all of it";
    }
    context = make_context("dram=32M; workers=1; nvme=" + directory.path() + ":512M");
    ASSERT_NE(context, nullptr);
    // Creates everything that the first use of each kind creates.
    for (const std::uint32_t flags : {0u, std::uint32_t{kMapped}}) {
      auto buffer = context->alloc(kMiB, {.extent_bytes = 65536, .flags = flags});
      if (buffer.ok()) {
        ASSERT_TRUE(buffer->write(0, "x", 1).ok());
      }
    }
    (void)context->stats();
  }
  Directory directory;
  std::unique_ptr<Context> context;
};

FOUND_TEST(RecordsTest, L15_a_buffer_that_is_not_touched_costs_nothing) {
  struct Shape {
    std::uint64_t bytes, extent;
    std::uint32_t flags;
  };
  for (const Shape shape : {Shape{kTiB, 0, 0}, Shape{kTiB, 0, kMapped}, Shape{kTiB, 65536, 0},
                            Shape{kTiB, 32768, kMapped}, Shape{kTiB, 32768, kIsolated},
                            Shape{100 * kGiB, 4096, 0}, Shape{100 * kGiB, 4096, kMapped}}) {
    SCOPED_TRACE(testing::Message()
                 << shape.bytes << " in " << shape.extent << " flags " << shape.flags);
    const std::uint64_t rss = status_bytes("VmRSS:");
    const std::uint64_t before = faults();
    for (int round = 0; round < 2; ++round) {  // The second round reuses the memory of the first.
      auto buffer =
          context->alloc(shape.bytes, {.extent_bytes = shape.extent, .flags = shape.flags});
      if (buffer.code() == Code::unsupported) {
        break;
      }
      ASSERT_TRUE(buffer.ok()) << buffer.message();
      auto info = buffer->info();
      ASSERT_TRUE(info.ok()) << info.message();
      EXPECT_EQ(info->zero, info->extents * info->extent_bytes);
      EXPECT_EQ(info->resident, 0u);
      ASSERT_TRUE(buffer->advise(Advice::dont_need).ok());
      *buffer = Buffer();
      (void)context->stats();  // When this call returns, the mover has freed the buffer.
    }
    EXPECT_LE(status_bytes("VmRSS:"), rss + kMiB);
    EXPECT_LE(faults() - before, 256u);
    EXPECT_LE(context->stats().metadata_bytes, kMiB);
  }
}

FOUND_TEST(RecordsTest, L15_a_touched_extent_costs_its_records_alone) {
  auto buffer = context->alloc(kTiB, {.extent_bytes = 65536});
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  const std::uint64_t rss = status_bytes("VmRSS:");
  for (const std::uint64_t at : {std::uint64_t{0}, kTiB / 2, kTiB - 8}) {
    const std::uint64_t value = at + 1;
    ASSERT_TRUE(buffer->write(at, &value, 8).ok());
  }
  EXPECT_LE(status_bytes("VmRSS:"), rss + 4 * kMiB);
  for (const std::uint64_t at : {std::uint64_t{0}, kTiB / 2, kTiB - 8}) {
    std::uint64_t value = 0;
    ASSERT_TRUE(buffer->read(at, &value, 8).ok());
    EXPECT_EQ(value, at + 1);
  }
}

// Each life of the records begins like the first one.
FOUND_TEST(RecordsTest, L15_records_that_are_used_again_are_as_new) {
  for (int round = 0; round < 3; ++round) {
    auto buffer = context->alloc(8 * kMiB, {.extent_bytes = 4096});
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    auto info = buffer->info();
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->zero, 8 * kMiB);
    std::vector<std::uint64_t> words(512);
    for (const std::uint64_t at : {std::uint64_t{0}, 5 * kMiB, 8 * kMiB - 4096}) {
      ASSERT_TRUE(buffer->read(at, words.data(), 4096).ok());
      EXPECT_EQ(words, std::vector<std::uint64_t>(512)) << "round " << round << " at " << at;
      fill(words, 5, at / 8);
      ASSERT_TRUE(buffer->write(at, words.data(), 4096).ok());
      std::fill(words.begin(), words.end(), 0);
    }
    ASSERT_TRUE(write_pattern(*buffer, 7).ok());
    ASSERT_TRUE(buffer->evict(4 * kMiB, 4 * kMiB).ok());  // In slots when the buffer is freed.
  }
}

FOUND_TEST(RecordsTest, L15_records_are_charged_to_the_budget) {
  // 16,384 extents; each costs more than 64 bytes.
  auto buffer = context->alloc(kTiB / 16, {.extent_bytes = 4096, .flags = kDroppable});
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  const std::uint64_t rss = status_bytes("VmRSS:");
  for (std::uint64_t at = 0; at < 64 * kMiB; at += kMiB) {
    auto view = buffer->acquire(kDiscard, at, kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), 9, at / 8);
  }
  const Stats stats = context->stats();
  EXPECT_GE(stats.metadata_bytes, 16384u * 64);
  EXPECT_LE(stats.dram_used, stats.dram_budget);
  // Frames and records together fill the budget and do not exceed it. The memory outside the budget
  // is documented.
  EXPECT_LE(status_bytes("VmRSS:"), rss + 32 * kMiB + 24 * kMiB);
  auto info = buffer->info();
  ASSERT_TRUE(info.ok());
  EXPECT_LE(info->resident + stats.metadata_bytes, 32 * kMiB + kMiB);
}

}  // namespace
}  // namespace tiermem::test

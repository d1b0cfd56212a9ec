// Bytes that move to another buffer. Bytes outside memory move without I/O. Whatever the ranges and
// wherever the bytes are, they arrive, and zeros stay behind.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct MoveBytes : ::testing::TestWithParam<std::uint64_t> {
  void SetUp() override {
    context = make_context("dram=16M; nvme=" + directory.path() + ":512M");
    ASSERT_NE(context, nullptr);
    if (context->alloc(4096, {.flags = kMapped}).code() == Code::unsupported) {
      GTEST_SKIP() << "no mapped buffers here";
    }
  }
  Buffer mapped(std::uint64_t bytes, std::uint64_t extent = GetParam()) {
    auto made = context->alloc(bytes, {.extent_bytes = extent, .flags = kMapped});
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(made).value() : Buffer();
  }
  static std::span<std::uint64_t> words(const Buffer& buffer) {
    return {reinterpret_cast<std::uint64_t*>(*buffer.address()), buffer.size() / 8};
  }
  Directory directory;
  std::unique_ptr<Context> context;
};
INSTANTIATE_TEST_SUITE_P(Extents, MoveBytes,
                         ::testing::Values(std::uint64_t{4096}, std::uint64_t{65536}, 2 * kMiB),
                         [](const auto& size) { return std::to_string(size.param / 1024) + "K"; });

TEST_P(MoveBytes, what_is_in_slots_only_is_neither_read_nor_written) {
  Buffer from = mapped(24 * kMiB);
  Buffer to = mapped(40 * kMiB);
  fill(words(from), 1);
  // Repeats while read-ahead pages still arrive, because resident pages would be copied.
  ASSERT_TRUE(eventually([&] { return from.evict().ok() && from.info()->resident == 0; }));
  const Stats before = context->stats();
  const Status moved = context->move_bytes(to.handle(), 0, from.handle(), 0, 24 * kMiB);
  ASSERT_TRUE(moved.ok()) << moved.message();
  const Stats after = context->stats();
  EXPECT_EQ(after.demoted, before.demoted);
  EXPECT_EQ(after.promoted, before.promoted);
  EXPECT_EQ(after.faults, before.faults);
  EXPECT_EQ(after.block_used, before.block_used);
  EXPECT_EQ(wrong(words(to).first(24 * kMiB / 8), 1), 0u);
  for (const std::uint64_t word : words(to).subspan(24 * kMiB / 8)) {
    ASSERT_EQ(word, 0u);
  }
  for (const std::uint64_t word : words(from)) {
    ASSERT_EQ(word, 0u);
  }
  // Both are still normal buffers.
  fill(words(from), 2);
  EXPECT_EQ(wrong(words(to).first(24 * kMiB / 8), 1), 0u);
  EXPECT_EQ(wrong(words(from), 2), 0u);
}

// Property: ranges begin anywhere, in buffers that are partly in memory, partly in slots and partly
// never written. All bytes of both buffers equal those of a model.
TEST_P(MoveBytes, any_range_arrives_and_leaves_zeros) {
  constexpr std::uint64_t kBytes = 20 * kMiB;
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 dice(seed);
  Buffer buffers[] = {mapped(kBytes), mapped(kBytes)};
  std::vector<std::uint64_t> models[] = {std::vector<std::uint64_t>(kBytes / 8),
                                         std::vector<std::uint64_t>(kBytes / 8)};
  for (int round = 0; round < (GetParam() == 4096 ? 2 : 6); ++round) {
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < 40; ++i) {
        const std::uint64_t at = dice() % (kBytes / 8);
        words(buffers[b])[at] = models[b][at] = dice();
      }
      ASSERT_TRUE(buffers[b].evict(0, dice() % kBytes).ok());
    }
    const std::uint64_t length = 1 + dice() % kBytes;
    const std::uint64_t out = dice() % (kBytes - length + 1) / 8 * 8;
    const bool together = dice() % 3 != 0;
    const std::uint64_t into = together ? out : dice() % (kBytes - length + 1) / 8 * 8;
    const std::uint64_t n = length / 8 * 8;
    const Status moved =
        context->move_bytes(buffers[1].handle(), into, buffers[0].handle(), out, n);
    ASSERT_TRUE(moved.ok()) << moved.message();
    for (std::uint64_t i = 0; i < n / 8; ++i) {
      models[1][into / 8 + i] = models[0][out / 8 + i];
      models[0][out / 8 + i] = 0;
    }
    for (int b = 0; b < 2; ++b) {
      const std::span<std::uint64_t> all = words(buffers[b]);
      std::uint64_t bad = 0;
      for (std::uint64_t i = 0; i < kBytes / 8; ++i) {
        bad += all[i] != models[b][i] ? 1 : 0;
      }
      ASSERT_EQ(bad, 0u) << "buffer " << b << " in round " << round << ": " << n << " bytes from "
                         << out << " to " << into;
    }
    std::swap(buffers[0], buffers[1]);
    std::swap(models[0], models[1]);
  }
}

TEST_P(MoveBytes, a_buffer_that_ended_or_is_no_mapped_one_is_refused_and_nothing_moves) {
  Buffer from = mapped(4 * kMiB);
  Buffer to = mapped(2 * kMiB);
  fill(words(from), 1);
  const auto move = [&](Handle into, Handle out, std::uint64_t bytes) {
    return context->move_bytes(into, 0, out, 0, bytes);
  };
  EXPECT_EQ(move(to.handle(), from.handle(), 4 * kMiB).code(), Code::invalid_argument);
  EXPECT_EQ(move(from.handle(), from.handle(), kMiB).code(), Code::invalid_argument);
  auto plain = context->alloc(4 * kMiB);
  ASSERT_TRUE(plain.ok());
  const Status unsupported = move(plain->handle(), from.handle(), kMiB);
  EXPECT_EQ(unsupported.code(), Code::unsupported);
  EXPECT_EQ(move(to.handle(), plain->handle(), kMiB).code(), Code::unsupported);
  const Handle gone = to.handle();
  to.reset();
  EXPECT_EQ(move(gone, from.handle(), kMiB).code(), Code::stale_handle);
  EXPECT_TRUE(move(gone, from.handle(), 0).ok());
  EXPECT_EQ(wrong(words(from), 1), 0u);
}

TEST_P(MoveBytes, extents_of_another_size_or_domain_are_copied) {
  Buffer from = mapped(20 * kMiB);
  Buffer to = mapped(20 * kMiB, GetParam() * 2);
  auto isolated = context->alloc(
      20 * kMiB, {.extent_bytes = GetParam(), .flags = kMapped | std::uint32_t{kIsolated}});
  ASSERT_TRUE(isolated.ok()) << isolated.message();
  fill(words(from), 3);
  ASSERT_TRUE(context->move_bytes(to.handle(), 0, from.handle(), 0, 20 * kMiB).ok());
  EXPECT_EQ(wrong(words(to), 3), 0u);
  ASSERT_TRUE(context->move_bytes(isolated->handle(), 0, to.handle(), 0, 20 * kMiB).ok());
  EXPECT_EQ(wrong(words(*isolated), 3), 0u);
  EXPECT_LE(context->stats().dram_used, 16 * kMiB);
}

}  // namespace
}  // namespace tiermem::test

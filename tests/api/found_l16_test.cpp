// Fault L16: the block tier charged a slot of a whole extent for each touched page. Fault R14:
// slots of resident bytes kept other bytes from being written. The tests check every byte through
// the pointer. If room is missing the program ends by SIGBUS.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/found.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kPage = 4096;

struct SparseBytes : ::testing::Test {
  void open(const std::string& dram, const std::string& nvme, const std::string& more = "") {
    auto made = Context::create("dram=" + dram + "; nvme=" + directory.path() + ":" + nvme + more);
    ASSERT_TRUE(made.ok()) << made.message();
    context = std::move(made).value();
    auto probe = context->alloc(4096, {.flags = kMapped});
    if (probe.code() == Code::unsupported) {
      GTEST_SKIP() << probe.message();
    }
  }
  Buffer alloc(std::uint64_t bytes, std::uint64_t extent, std::uint32_t flags) {
    auto made = context->alloc(bytes, {.extent_bytes = extent, .flags = flags, .label = "sparse"});
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(made).value() : Buffer();
  }
  /// Allocates buffers of 1 MiB, and touches two distant bytes of each with `touch(buffer, offset,
  /// value)`.
  template <typename Touch>
  std::vector<Buffer> touch_two_bytes(unsigned count, std::uint64_t extent, std::uint32_t flags,
                                      Touch&& touch) {
    std::vector<Buffer> buffers;
    for (unsigned i = 0; i < count; ++i) {
      buffers.push_back(alloc(kMiB, extent, flags));
      touch(buffers.back(), 5000 + i % 1000, static_cast<std::byte>(1 + i % 255));
      touch(buffers.back(), kMiB - 70000 - i % 1000, static_cast<std::byte>(1 + i % 127));
    }
    return buffers;
  }
  static void store(Buffer& buffer, std::uint64_t offset, std::byte value) {
    (*buffer.address())[offset] = value;
  }
  static std::uint64_t wrong_bytes(std::vector<Buffer>& buffers) {
    std::uint64_t wrong = 0;
    for (unsigned i = 0; i < buffers.size(); ++i) {
      const std::byte* const at = *buffers[i].address();
      wrong += at[5000 + i % 1000] != static_cast<std::byte>(1 + i % 255) ? 1 : 0;
      wrong += at[kMiB - 70000 - i % 1000] != static_cast<std::byte>(1 + i % 127) ? 1 : 0;
      wrong += at[4999] != std::byte{0} || at[kMiB - 60000] != std::byte{0} ? 1 : 0;
    }
    return wrong;
  }
  Directory directory;
  std::unique_ptr<Context> context;
};

FOUND_TEST(SparseBytes,
           L16_two_bytes_are_touched_in_each_mapped_buffer_then_two_pages_are_charged) {
  open("16M", "32M");
  std::vector<Buffer> buffers = touch_two_bytes(2000, 65536, kMapped, store);
  EXPECT_EQ(wrong_bytes(buffers), 0u);
  const Stats stats = context->stats();
  EXPECT_GT(stats.block_used, 8 * kMiB);
  EXPECT_LE(stats.block_used, 4000 * kPage);
}

TEST_F(SparseBytes, default_extents_of_mapped_buffers_are_charged_by_the_page) {
  open("16M", "4M");
  std::vector<Buffer> buffers = touch_two_bytes(120, 0, kMapped, store);
  EXPECT_EQ(wrong_bytes(buffers), 0u);
  EXPECT_LE(context->stats().block_used, 240 * kPage);
}

TEST_F(SparseBytes, views_of_default_extents_are_charged_by_the_page) {
  open("16M", "4M");
  const auto touch = [&](Buffer& buffer, std::uint64_t offset, std::byte value) {
    auto view = buffer.acquire(kWrite, offset, 1);
    ASSERT_TRUE(view.ok()) << view.message();
    *static_cast<std::byte*>(view->data()) = value;
  };
  std::vector<Buffer> buffers = touch_two_bytes(120, 0, 0, touch);
  for (unsigned i = 0; i < buffers.size(); ++i) {
    auto view = buffers[i].acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    const auto* const at = static_cast<const std::byte*>(view->data());
    EXPECT_EQ(at[5000 + i % 1000], static_cast<std::byte>(1 + i % 255));
    EXPECT_EQ(at[kMiB - 70000 - i % 1000], static_cast<std::byte>(1 + i % 127));
    EXPECT_EQ(at[4999], std::byte{0});
  }
  EXPECT_LE(context->stats().block_used, 240 * kPage);
}

TEST_F(SparseBytes, bytes_that_are_zeros_are_charged_nothing) {
  open("8M", "2M");
  Buffer buffer = alloc(32 * kMiB, 65536, kMapped);
  std::byte* const at = *buffer.address();
  std::memset(at, 0, buffer.size());
  for (std::uint64_t i = 0; i < buffer.size(); i += kPage) {
    ASSERT_EQ(at[i], std::byte{0});
  }
  EXPECT_EQ(context->stats().block_used, 0u);
}

TEST_F(SparseBytes, random_touches_near_the_cap_read_as_those_of_plain_memory) {
  constexpr std::uint64_t kCap = 3 * kMiB;
  for (const std::uint64_t extent : {std::uint64_t{65536}, std::uint64_t{16384}}) {
    open("4M", "3M");
    std::vector<Buffer> buffers;
    for (unsigned i = 0; i < 48; ++i) {
      buffers.push_back(alloc(kMiB / 2, extent, kMapped));
    }
    std::mt19937_64 dice(extent);
    using Bytes = std::map<std::uint64_t, std::byte>;
    std::vector<Bytes> model(buffers.size());
    // Pages written so far, by extent: the slots may cost this much.
    std::map<std::pair<std::size_t, std::uint64_t>, std::map<std::uint64_t, int>> pages;
    std::uint64_t stored = 0;
    while (stored < kCap * 8 / 10) {
      const std::size_t which = dice() % buffers.size();
      const std::uint64_t offset = dice() % (kMiB / 2);
      std::byte& now = (*buffers[which].address())[offset];
      const auto known = model[which].find(offset);
      ASSERT_EQ(now, known == model[which].end() ? std::byte{0} : known->second);
      now = static_cast<std::byte>(dice());
      model[which][offset] = now;
      auto& of_extent = pages[{which, offset / extent}];
      stored -= of_extent.empty() ? 0 : std::bit_ceil(of_extent.size()) * kPage;
      ++of_extent[offset % extent / kPage];
      stored += std::bit_ceil(of_extent.size()) * kPage;
    }
    for (std::size_t which = 0; which < buffers.size(); ++which) {
      std::vector<std::byte> whole(kMiB / 2);
      for (const auto& [offset, value] : model[which]) {
        whole[offset] = value;
      }
      EXPECT_EQ(std::memcmp(*buffers[which].address(), whole.data(), whole.size()), 0);
    }
    EXPECT_LE(context->stats().block_used, kCap);
    buffers.clear();
    context.reset();
  }
}

// A page is given up and written again. The others stay unchanged.
TEST_F(SparseBytes, discarded_pages_read_as_zeros_and_take_new_bytes) {
  open("4M", "16M");
  Buffer buffer = alloc(16 * kMiB, 65536, kMapped);
  std::byte* const at = *buffer.address();
  const auto write_pages = [&](unsigned from, unsigned step, std::byte value) {
    for (std::uint64_t page = from; page < buffer.size() / kPage; page += step) {
      at[page * kPage + page % kPage] = value;
    }
  };
  write_pages(1, 5, std::byte{1});
  ASSERT_TRUE(buffer.evict().ok());
  const std::uint64_t used = context->stats().block_used;
  EXPECT_LE(used, 8 * kMiB);
  for (std::uint64_t page = 1; page < buffer.size() / kPage; page += 10) {
    ASSERT_TRUE(buffer.advise(Advice::dont_need, 0, page * kPage, kPage).ok());
  }
  write_pages(3, 7, std::byte{2});
  ASSERT_TRUE(buffer.evict().ok());
  for (std::uint64_t page = 0; page < buffer.size() / kPage; ++page) {
    const bool first = page % 5 == 1 && page % 10 != 1;
    const std::byte expected = page % 7 == 3 ? std::byte{2} : first ? std::byte{1} : std::byte{0};
    ASSERT_EQ(at[page * kPage + page % kPage], expected) << page;
  }
}

struct SlotsThatGiveWay : SparseBytes {};

// 22 MiB in 8 MiB of memory and 16 MiB of slots: resident bytes need no slot.
TEST_F(SlotsThatGiveWay, nearly_all_of_memory_and_slots_is_used_then_every_byte_can_be_touched) {
  open("8M", "16M");
  Buffer buffer = alloc(22 * kMiB, 65536, kMapped);
  auto* const words = reinterpret_cast<std::uint64_t*>(*buffer.address());
  const std::uint64_t count = buffer.size() / 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    words[i] = i * 0x9E3779B97F4A7C15u + 1;
  }
  std::mt19937_64 dice(1);
  for (unsigned i = 0; i < 2000; ++i) {
    const std::uint64_t at = dice() % count;
    ASSERT_EQ(words[at], at * 0x9E3779B97F4A7C15u + 1);
    words[at] = at * 0x9E3779B97F4A7C15u + 1;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(words[i], i * 0x9E3779B97F4A7C15u + 1);
  }
  EXPECT_LE(context->stats().block_used, 16 * kMiB);
}

}  // namespace
}  // namespace tiermem::test

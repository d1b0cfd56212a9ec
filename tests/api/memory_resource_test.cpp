// Containers of the standard library over buffers, with more bytes than memory holds.
#include "tiermem/memory_resource.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory_resource>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct MemoryResources : ::testing::Test {
  void SetUp() override { context = make_context("dram=16M; nvme=" + directory.path() + ":256M"); }
  bool mapped() const { return context->alloc(1, {.flags = kMapped}).ok(); }
  Directory directory;
  std::unique_ptr<Context> context;
};

TEST_F(MemoryResources, a_vector_grows_beyond_memory) {
  if (!mapped()) {
    GTEST_SKIP() << "no mapped buffers here";
  }
  MemoryResource resource(*context, {.label = "vector"});
  std::pmr::vector<std::uint64_t> numbers(&resource);
  // 46 MiB, and the same amount again while the vector grows.
  for (std::uint64_t i = 0; i < 6'000'000; ++i) {
    numbers.push_back(i);
  }
  EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0}),
            std::uint64_t{6'000'000} * 5'999'999 / 2);
  EXPECT_LE(context->stats().dram_used, 16 * kMiB);
  EXPECT_EQ(resource.live(), 1u);
  numbers = std::pmr::vector<std::uint64_t>(&resource);
  numbers.shrink_to_fit();
  EXPECT_EQ(resource.live(), 0u);
}

TEST_F(MemoryResources, small_blocks_come_from_a_pool_before_it) {
  if (!mapped()) {
    GTEST_SKIP() << "no mapped buffers here";
  }
  MemoryResource resource(*context, {.extent_bytes = 65536});
  {
    std::pmr::synchronized_pool_resource pool(&resource);
    std::pmr::map<std::uint64_t, std::pmr::string> words(&pool);
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      words[i] = std::string(100 + i % 100, static_cast<char>('a' + i % 26));
    }
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      const auto& word = words.at(i);
      ASSERT_EQ(word.size(), 100 + i % 100);
      ASSERT_EQ(word.back(), static_cast<char>('a' + i % 26));
    }
    EXPECT_LT(resource.live(), 500u);
    EXPECT_LE(context->stats().dram_used, 16 * kMiB);
  }
  EXPECT_EQ(resource.live(), 0u);
}

TEST_F(MemoryResources, alignments_are_kept) {
  MemoryResource resource(*context);
  for (std::size_t alignment = 1; alignment <= std::size_t{4} << 20; alignment *= 4) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
      void* const at = resource.allocate(bytes, alignment);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % alignment, 0u) << alignment;
      if (bytes != 0) {
        static_cast<char*>(at)[bytes - 1] = 1;
      }
      resource.deallocate(at, bytes, alignment);
    }
  }
  EXPECT_TRUE(resource.last_refusal().ok());
}

TEST_F(MemoryResources, what_cannot_be_had_is_bad_alloc_with_a_reason) {
  MemoryResource resource(*context);
  EXPECT_THROW((void)resource.allocate(std::size_t{1} << 50), std::bad_alloc);
  EXPECT_EQ(resource.last_refusal().code(), Code::invalid_argument);
  EXPECT_SAYS(resource.last_refusal(), "alloc");
}

TEST_F(MemoryResources, without_mapped_buffers_the_bytes_are_held_in_memory) {
  context = make_context("dram=16M; nvme=off; mechanism=in_place");
  MemoryResource resource(*context);
  std::pmr::vector<std::uint64_t> numbers(1'000'000, 7, &resource);
  EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0}), 7'000'000u);
  EXPECT_GE(context->stats().dram_pinned, 7 * kMiB);
  EXPECT_THROW((void)resource.allocate(32 * kMiB), std::bad_alloc);
  EXPECT_EQ(resource.last_refusal().code(), Code::no_capacity);
}

TEST_F(MemoryResources, what_is_left_ends_with_it) {
  {
    MemoryResource resource(*context);
    (void)resource.allocate(kMiB);
    (void)resource.allocate(3 * kMiB);
    EXPECT_FALSE(resource.is_equal(*std::pmr::new_delete_resource()));
    EXPECT_TRUE(resource.is_equal(resource));
  }
  EXPECT_TRUE(eventually([&] { return context->stats().buffers == 0; }));
}

TEST_F(MemoryResources, threads_allocate_at_once) {
  MemoryResource resource(*context);
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        std::pmr::vector<int> numbers(static_cast<std::size_t>(1000 + i), t, &resource);
        bad += std::accumulate(numbers.begin(), numbers.end(), 0) != t * (1000 + i) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(resource.live(), 0u);
}

}  // namespace
}  // namespace tiermem::test

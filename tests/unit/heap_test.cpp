// A heap over a source that counts and can refuse. Blocks keep their bytes and never overlap,
// pointers to other memory are recognised, and all memory is returned.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap_fixture.hpp"

namespace tiermem::heap {
namespace {

TEST(BlockSizes, every_size_gets_the_smallest_class_that_holds_it) {
  for (std::size_t bytes = 1; bytes <= kLargestSmall; ++bytes) {
    const unsigned size_class = class_of(bytes);
    ASSERT_LT(size_class, kClasses);
    ASSERT_GE(class_bytes(size_class), bytes);
    ASSERT_TRUE(size_class == 0 || class_bytes(size_class - 1) < bytes);
    ASSERT_TRUE(bytes <= 128 || class_bytes(size_class) - bytes <= bytes / 4);
  }
  EXPECT_EQ(class_of(0), 0u);
  for (unsigned size_class = 0; size_class < kClasses; ++size_class) {
    EXPECT_EQ(class_bytes(size_class) % kLeastAlign, 0u);
    const std::uint32_t slab = slab_pages(size_class) * kPage;
    EXPECT_LE(slab % class_bytes(size_class), slab / 8);
    EXPECT_LE(slab / class_bytes(size_class), kMostSlabBlocks);
  }
  EXPECT_EQ(aligned_class(16, 4096), class_of(4096));
  EXPECT_EQ(aligned_class(200, 64), class_of(256));
  EXPECT_EQ(aligned_class(kLargestSmall + 1, 16), kClasses);
  EXPECT_EQ(aligned_class(16, 8192), kClasses);
}

// Property: live blocks keep the bytes written to all of their usable size, whatever else is
// allocated and freed. After the last free the heap holds only one chunk for each shard.
TEST_F(Heaps, blocks_keep_their_bytes_and_all_memory_goes_back) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 dice(seed);
  struct Live {
    unsigned char* block;
    std::uint64_t bytes;
    unsigned char mark;
  };
  std::vector<Live> live;
  const auto end = [&](std::size_t which) {
    std::swap(live[which], live.back());
    const Live last = live.back();
    live.pop_back();
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < last.bytes; ++i) {
      wrong += last.block[i] != last.mark ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0u);
    ASSERT_EQ(free(last.block), Found::block);
  };
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 400 || dice() % 2 == 0) {
      const unsigned shift = static_cast<unsigned>(dice() % 19);
      const std::uint64_t bytes = dice() % (std::uint64_t{2} << shift);
      const std::uint64_t align = std::uint64_t{1} << dice() % (dice() % 50 == 0 ? 18 : 8);
      auto* const block = static_cast<unsigned char*>(allocate(bytes, align));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % std::max<std::uint64_t>(align, 16), 0u);
      const std::uint64_t usable = size_of(block);
      ASSERT_GE(usable, bytes);
      const auto mark = static_cast<unsigned char>(dice());
      std::memset(block, mark, usable);
      live.push_back({block, usable, mark});
    } else {
      end(dice() % live.size());
    }
    while (live.size() > 600) {
      end(dice() % live.size());
    }
    if (i % 500 == 0) {
      ASSERT_TRUE(heap->test_consistent());
      ASSERT_EQ(heap->books().held, source.held);
    }
  }
  while (!live.empty()) {
    end(live.size() - 1);
  }
  EXPECT_EQ(heap->books().used, 0u);
  EXPECT_EQ(source.held, 256 * kKiB);
}

TEST_F(Heaps, what_is_no_block_is_told_from_one) {
  int local = 0;
  EXPECT_EQ(free(&local), Found::foreign);
  EXPECT_EQ(free(reinterpret_cast<void*>(~std::uintptr_t{0} - 15)), Found::foreign);
  void* const small = allocate(100);
  void* const kept = allocate(100);
  void* const medium = allocate(40 * kKiB);
  void* const large = allocate(kMiB);
  const auto at = [](void* block, std::size_t offset) {
    return static_cast<void*>(static_cast<std::byte*>(block) + offset);
  };
  EXPECT_EQ(free(at(small, 1)), Found::inside);
  EXPECT_EQ(free(at(small, 16)), Found::inside);
  EXPECT_EQ(free(at(medium, 16)), Found::inside);
  EXPECT_EQ(free(at(medium, kPage)), Found::inside);
  EXPECT_EQ(free(at(large, kPage)), Found::inside);
  // The table has only the block's beginning.
  EXPECT_EQ(free(at(large, kMiB / 2)), Found::foreign);
  // 16 KiB hold 146 blocks of 112 bytes, and 32 bytes remain.
  std::byte* const slab =
      static_cast<std::byte*>(small) - reinterpret_cast<std::uintptr_t>(small) % (16 * kKiB);
  EXPECT_EQ(free(slab + 146 * 112), Found::inside);
  // Never allocated, which the heap reports in the same way.
  EXPECT_EQ(free(slab + 145 * 112), Found::freed);

  EXPECT_EQ(free(small), Found::block);
  EXPECT_EQ(free(small), Found::freed);
  EXPECT_EQ(free(medium), Found::block);
  EXPECT_EQ(free(medium), Found::freed);
  EXPECT_EQ(free(large), Found::block);
  EXPECT_EQ(free(large), Found::foreign);
  EXPECT_EQ(free(kept), Found::block);
}

TEST_F(Heaps, a_loop_at_the_edge_of_a_chunk_does_not_ask_the_source_each_time) {
  std::vector<void*> blocks;
  while (source.held <= 256 * kKiB) {  // Until the heap takes its second chunk.
    blocks.push_back(allocate(16 * kKiB));
  }
  const unsigned before = source.asked;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(free(blocks.back()), Found::block);
    blocks.back() = allocate(16 * kKiB);
  }
  EXPECT_EQ(source.asked, before);
  for (void* const block : blocks) {
    EXPECT_EQ(free(block), Found::block);
  }
  EXPECT_EQ(source.held, 256 * kKiB);
}

TEST_F(Heaps, a_refusal_leaves_the_heap_as_it_was) {
  source.refuse = 1;
  EXPECT_EQ(heap->allocate(64, 16).code(), Code::no_capacity);
  void* const first = allocate(64);
  source.refuse = 1;
  EXPECT_EQ(heap->allocate(kMiB, 16).code(), Code::no_capacity);
  EXPECT_EQ(heap->books().used, 64u);
  source.limit = 256 * kKiB;
  std::vector<void*> blocks;
  Result<void*> block = heap->allocate(4000, 16);
  for (; block.ok(); block = heap->allocate(4000, 16)) {
    blocks.push_back(*block);
  }
  EXPECT_EQ(block.code(), Code::no_capacity);
  // Seven slabs of eight pages, beside the slab of `first`, which has four.
  EXPECT_EQ(blocks.size(), 56u);
  EXPECT_EQ(free(blocks.back()), Found::block);
  blocks.back() = allocate(4000);
  for (void* const each : blocks) {
    EXPECT_EQ(free(each), Found::block);
  }
  EXPECT_EQ(free(first), Found::block);
}

TEST_F(Heaps, a_kept_chunk_makes_way_for_a_large_block) {
  EXPECT_EQ(free(allocate(64)), Found::block);
  EXPECT_EQ(source.held, 256 * kKiB);
  source.limit = kMiB;
  void* const large = allocate(kMiB);
  EXPECT_EQ(source.held, kMiB);
  EXPECT_EQ(free(large), Found::block);
  EXPECT_EQ(source.held, 0u);
}

// Each thread has its own shard. When the source refuses memory, threads allocate from each other's
// shards.
TEST_F(Heaps, room_in_another_threads_shard_is_used) {
  make({.chunk_bytes = 256 * kKiB, .shards = 2});
  source.limit = 256 * kKiB;
  void* const mine = allocate(64);
  std::vector<void*> theirs;
  for (int t = 0; t < 2; ++t) {  // Every second thread uses the other shard.
    std::thread([&] { theirs.push_back(allocate(64)); }).join();
  }
  EXPECT_EQ(source.held, 256 * kKiB);
  for (void* const block : theirs) {
    EXPECT_EQ(free(block), Found::block);
  }
  EXPECT_EQ(free(mine), Found::block);
}

// Each block is freed by a thread other than the one that allocated it.
TEST_F(Heaps, blocks_that_wander_between_threads_are_freed_once) {
  make({.chunk_bytes = 256 * kKiB, .shards = 4});
  constexpr unsigned kThreads = 4;
  constexpr int kRounds = 20000;
  std::vector<std::atomic<std::uint64_t*>> slots(256);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 dice(t);
      for (int i = 0; i < kRounds; ++i) {
        const std::uint64_t bytes = 8 + dice() % (dice() % 64 == 0 ? 200'000 : 2000);
        auto* block = static_cast<std::uint64_t*>(allocate(bytes));
        if (block == nullptr) {
          return;
        }
        *block = reinterpret_cast<std::uintptr_t>(block);
        block = slots[dice() % slots.size()].exchange(block);
        if (block != nullptr) {
          wrong += *block != reinterpret_cast<std::uintptr_t>(block) ? 1 : 0;
          *block = 0;
          wrong += free(block) != Found::block ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (auto& slot : slots) {
    if (slot.load() != nullptr) {
      wrong += free(slot.load()) != Found::block ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(heap->books().used, 0u);
  EXPECT_LE(source.held, 4 * 256 * kKiB);
}

TEST(ChunkTable, knows_what_was_entered_and_nothing_else) {
  ChunkTable table;
  Chunk chunk(nullptr, nullptr);
  auto* const begin = reinterpret_cast<std::byte*>(std::uintptr_t{0x7fff'ffff'0000} - kGranule);
  ASSERT_TRUE(table.enter(begin, kGranule + 1, &chunk));
  EXPECT_EQ(table.find(begin), &chunk);
  EXPECT_EQ(table.find(begin + 2 * kGranule - 1), &chunk);
  EXPECT_EQ(table.find(begin - 1), nullptr);
  EXPECT_EQ(table.find(nullptr), nullptr);
  EXPECT_EQ(table.find(reinterpret_cast<void*>(~std::uintptr_t{0})), nullptr);
  table.remove(begin, kGranule + 1);
  EXPECT_EQ(table.find(begin), nullptr);
  // Beyond the address space of a program.
  EXPECT_FALSE(table.enter(begin + kGranule, 3 * kGranule, &chunk));
  EXPECT_EQ(table.find(begin + kGranule), nullptr);
}

}  // namespace
}  // namespace tiermem::heap

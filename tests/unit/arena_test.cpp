// The internal arena: blocks are aligned, distinct and reused, from any thread; nothing leaks.
#include "base/arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "base/arena_reserve.hpp"
#include "in_child.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
  std::size_t align;
  unsigned char mark;
};

void fill(const Block& block) {
  std::memset(block.data, block.mark, block.bytes);
}

bool holds_its_mark(const Block& block) {
  const auto* bytes = static_cast<const unsigned char*>(block.data);
  for (std::size_t i = 0; i < block.bytes; ++i) {
    if (bytes[i] != block.mark) {
      return false;
    }
  }
  return true;
}

TEST(Arena, every_size_and_alignment_is_met_and_counted) {
  const ArenaStats before = arena_stats();
  std::vector<Block> blocks;
  const std::size_t sizes[] = {0,     1,     15,    16,    17,    31,    32,     33,   48,
                               49,    64,    65,    96,    97,    1000,  4095,   4096, 4097,
                               24576, 24577, 32767, 32768, 32769, 65536, 1000000};
  for (const std::size_t bytes : sizes) {
    for (std::size_t align = 1; align <= (std::size_t{1} << 21); align *= 2) {
      void* data = arena_allocate(bytes, align);
      ASSERT_NE(data, nullptr) << bytes << " at " << align;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % align, 0U) << bytes << " at " << align;
      blocks.push_back({data, bytes, align, static_cast<unsigned char>(blocks.size() * 7 + 1)});
      fill(blocks.back());
    }
  }
  for (const Block& block : blocks) {
    EXPECT_TRUE(holds_its_mark(block)) << block.bytes << " at " << block.align;
  }
  EXPECT_EQ(arena_stats().blocks, before.blocks + blocks.size());
  for (const Block& block : blocks) {
    arena_free(block.data, block.bytes, block.align);
  }
  const ArenaStats after = arena_stats();
  EXPECT_EQ(after.blocks, before.blocks);
  EXPECT_EQ(after.live, before.live);
}

TEST(Arena, a_freed_block_is_given_out_again) {
  void* first = arena_allocate(100);
  arena_free(first, 100);
  void* second = arena_allocate(128 - 20);
  EXPECT_EQ(first, second);
  arena_free(second, 128 - 20);
}

TEST(Arena, churn_of_small_blocks_maps_nothing_new) {
  for (int i = 0; i < 100; ++i) {
    arena_free(arena_allocate(4000), 4000);
  }
  const ArenaStats before = arena_stats();
  for (int i = 0; i < 100000; ++i) {
    arena_free(arena_allocate(4000), 4000);
  }
  EXPECT_EQ(arena_stats().mapped, before.mapped);
}

TEST(Arena, large_blocks_go_back_to_the_kernel) {
  const ArenaStats before = arena_stats();
  const std::size_t bytes = std::size_t{8} << 20;
  void* block = arena_allocate(bytes);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(arena_stats().mapped, before.mapped + bytes);
  arena_free(block, bytes);
  EXPECT_EQ(arena_stats().mapped, before.mapped);
}

TEST(Arena, an_impossible_size_is_refused) {
  volatile std::size_t bytes = static_cast<std::size_t>(-1);
  EXPECT_EQ(arena_allocate(bytes), nullptr);
  EXPECT_EQ(arena_allocate(bytes / 2), nullptr);
  ArenaAllocator<std::uint64_t> allocator;
  EXPECT_THROW((void)allocator.allocate(bytes / 4), std::bad_alloc);
}

// RLIMIT_AS leaves no address space for new blocks. Only a thread in a ReserveScope can still
// allocate, from the reserve. The reserve is filled again when memory is available again.
TEST(Arena, memory_is_refused_then_only_threads_of_the_reserve_go_on) {
  if constexpr (test::kAddressSanitizer || test::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need address space";
  }
  EXPECT_TRUE(in_child([] {
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    if (!arena_fill_reserve() || arena_uses_reserve()) {
      return false;
    }
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    const rlimit little{kBlock, before.rlim_max};
    setrlimit(RLIMIT_AS, &little);
    if (arena_allocate(kBlock) != nullptr) {
      return false;  // A caller outside tiermem must not use the reserve.
    }
    const ArenaScope inside;
    if (arena_allocate(kBlock) != nullptr) {
      return false;  // Nor may a caller inside tiermem.
    }
    const ReserveScope reserve;
    void* const first = arena_allocate(kBlock);
    void* const second = arena_allocate(kBlock, std::size_t{1} << 16);
    if (first == nullptr || second == nullptr || !arena_uses_reserve() || arena_fill_reserve() ||
        arena_allocate(4 * kBlock) != nullptr) {
      return false;
    }
    std::memset(first, 1, kBlock);
    std::memset(second, 2, kBlock);
    const bool apart = *static_cast<char*>(first) == 1;
    arena_free(first, kBlock);
    setrlimit(RLIMIT_AS, &before);
    const bool whole = arena_fill_reserve() && !arena_uses_reserve();
    const bool kept = *static_cast<char*>(second) == 2;
    arena_free(second, kBlock, std::size_t{1} << 16);
    return apart && whole && kept;
  }));
}

// Small blocks of the reserve are allocated in runs. A thread that may not use the reserve must not
// use the rest of such a run either.
TEST(Arena, memory_is_refused_then_a_caller_gets_no_small_block_of_the_reserve) {
  if constexpr (test::kAddressSanitizer || test::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need address space";
  }
  EXPECT_TRUE(in_child([] {
    constexpr std::size_t kBlock = 24576;
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    const rlimit little{kBlock, before.rlim_max};
    if (!arena_fill_reserve()) {
      return false;
    }
    setrlimit(RLIMIT_AS, &little);
    const ArenaScope inside;
    while (arena_allocate(kBlock) != nullptr) {
    }
    if (arena_uses_reserve()) {
      return false;
    }
    bool got = false;
    {
      const ReserveScope reserve;
      got = arena_allocate(kBlock) != nullptr;
    }
    return got && arena_uses_reserve() && arena_allocate(kBlock) == nullptr;
  }));
}

TEST(Arena, nothing_comes_from_malloc) {
  std::vector<void*> blocks;
  blocks.reserve(40000);
  const struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < 40000; ++i) {
    blocks.push_back(arena_allocate(100));
  }
  const struct mallinfo2 after = mallinfo2();
  EXPECT_EQ(after.uordblks, before.uordblks);
  EXPECT_EQ(after.hblkhd, before.hblkhd);
  for (void* block : blocks) {
    arena_free(block, 100);
  }
}

TEST(Arena, threads_share_it_and_blocks_never_overlap) {
  // Each thread keeps marked blocks and passes some to its neighbour, which frees them.
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  const ArenaStats before = arena_stats();
  std::vector<Block> handed[kThreads];
  std::atomic<int> broken{0};
  auto work = [&](int self, std::vector<Block>* gives) {
    std::mt19937 random(static_cast<unsigned>(self) + 17);
    std::vector<Block> kept;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t bytes = random() % 16 == 0 ? random() % 70000 : random() % 700;
      const std::size_t align = std::size_t{1} << (random() % 8);
      Block block{arena_allocate(bytes, align), bytes, align,
                  static_cast<unsigned char>(random() % 255)};
      fill(block);
      kept.push_back(block);
      if (kept.size() > 50) {
        const std::size_t victim = random() % kept.size();
        std::swap(kept[victim], kept.back());
        broken += holds_its_mark(kept.back()) ? 0 : 1;
        arena_free(kept.back().data, kept.back().bytes, kept.back().align);
        kept.pop_back();
      }
    }
    *gives = kept;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(work, i, &handed[i]);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& blocks : handed) {
    for (const Block& block : blocks) {
      broken += holds_its_mark(block) ? 0 : 1;
      arena_free(block.data, block.bytes, block.align);
    }
  }
  EXPECT_EQ(broken.load(), 0) << "seeds 17 to " << 17 + kThreads - 1;
  EXPECT_EQ(arena_stats().blocks, before.blocks);
  EXPECT_EQ(arena_stats().live, before.live);
}

TEST(Arena, containers_take_from_it) {
  const ArenaStats before = arena_stats();
  {
    Vector<std::uint64_t> numbers(1000, 7);
    Deque<int> queue;
    Map<int, String> names;
    HashMap<String, int, std::hash<std::string_view>> index;
    for (int i = 0; i < 1000; ++i) {
      queue.push_back(i);
      names[i] = String("a name that is too long for the small string ") + String(5, 'x');
    }
    index[String("another key that is too long for the small string")] = 5;
    EXPECT_GT(arena_stats().blocks, before.blocks + 2000);
    EXPECT_EQ(names.at(999).size(), 50U);
    EXPECT_EQ(queue.back(), 999);
  }
  EXPECT_EQ(arena_stats().blocks, before.blocks);
}

TEST(Arena, scopes_nest_and_belong_to_their_thread) {
  EXPECT_FALSE(inside_tiermem());
  {
    const ArenaScope outer;
    EXPECT_TRUE(inside_tiermem());
    {
      const ArenaScope inner;
      EXPECT_TRUE(inside_tiermem());
    }
    EXPECT_TRUE(inside_tiermem());
    bool other = true;
    std::thread([&] { other = inside_tiermem(); }).join();
    EXPECT_FALSE(other);
  }
  EXPECT_FALSE(inside_tiermem());
}

TEST(Arena, a_child_of_fork_can_allocate_while_threads_were_allocating) {
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop.load()) {
      arena_free(arena_allocate(100), 100);
    }
  });
  int failed = 0;
  for (int i = 0; i < 50; ++i) {
    arena_before_fork();
    const pid_t child = fork();
    arena_after_fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // A lock left behind by the other thread would hang here.
      void* block = arena_allocate(100);
      _exit(block != nullptr ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  stop = true;
  churn.join();
  EXPECT_EQ(failed, 0);
}

TEST(Arena, enclosed_it_stays_in_its_range_and_uses_large_blocks_again) {
  if (arena_stats().mapped != 0) {
    GTEST_SKIP() << "needs a process of its own";
  }
  const int elsewhere = 0;
  EXPECT_FALSE(arena_contains(&elsewhere));
  ASSERT_TRUE(arena_enclose(std::size_t{1} << 32));
  void* again = nullptr;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes :
         {std::size_t{16}, std::size_t{5000}, std::size_t{40000}, std::size_t{3} << 20}) {
      for (const std::size_t align : {kArenaAlign, std::size_t{4096}, std::size_t{1} << 16}) {
        auto* const block = static_cast<char*>(arena_allocate(bytes, align));
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(arena_contains(block) && arena_contains(block + bytes - 1));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % align, 0u);
        block[0] = block[bytes - 1] = 1;
        again = block;
        arena_free(block, bytes, align);
      }
    }
    EXPECT_EQ(arena_allocate(std::size_t{3} << 20), again);
    arena_free(again, std::size_t{3} << 20);
  }
  EXPECT_EQ(arena_allocate(std::size_t{1} << 33), nullptr);  // More than the range holds.

  // A block in use stays valid, whatever the new size. The rest of the range is returned to the
  // process.
  auto* const used = static_cast<char*>(arena_allocate(std::size_t{40} << 20));
  ASSERT_NE(used, nullptr);
  arena_shrink(std::size_t{128} << 20);
  EXPECT_TRUE(arena_contains(used));
  used[0] = used[(40 << 20) - 1] = 1;
  auto* const end = reinterpret_cast<char*>(detail::arena_begin + (std::size_t{128} << 20));
  EXPECT_TRUE(arena_contains(end - 1));
  EXPECT_FALSE(arena_contains(end));
  EXPECT_EQ(msync(end, 4096, MS_ASYNC), -1);
  EXPECT_EQ(arena_allocate(std::size_t{128} << 20), nullptr);
  arena_shrink(0);
  EXPECT_TRUE(arena_contains(used));
  EXPECT_EQ(arena_allocate(std::size_t{16} << 20), nullptr);
  EXPECT_EQ(used[0], 1);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(Arena, a_use_after_free_is_found_by_the_sanitizer) {
  EXPECT_DEATH(
      {
        auto* block = static_cast<volatile char*>(arena_allocate(64));
        arena_free(const_cast<char*>(block), 64);
        block[20] = 1;
      },
      "use-after-poison");
}
#endif

}  // namespace
}  // namespace tiermem

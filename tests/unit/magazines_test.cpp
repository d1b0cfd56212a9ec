// Magazines: threads keep small blocks. A second free is an error wherever the block is, and kept
// blocks come back when their thread ends, when memory is short, when the heap ends, and in a child
// of fork.
#include "heap/magazines.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap_fixture.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::heap {
namespace {

using test::kAddressSanitizer;
using test::kThreadSanitizer;

constexpr std::uint64_t kAny = static_cast<std::uint64_t>(Use::any);
constexpr unsigned kThreads = 4;

struct Threads : Heaps {
  void SetUp() override { open({.chunk_bytes = 256 * kKiB, .shards = 2}); }
  void open(HeapOptions options) {
    options.magazines = 16;
    options.owner = this;
    options.uses = kAny;
    make(options);
  }
  // As PlacedMemory does it: first the magazines, and then the heap.
  void* quick(std::uint64_t bytes) {
    void* const kept =
        bytes <= kLargestKept ? Magazines::take(this, Use::any, kept_class(bytes)) : nullptr;
    return kept != nullptr ? kept : allocate(bytes);
  }
  Found end(void* block) { return Magazines::give(this, block) ? Found::block : free(block); }
  // A thread that does not end while it is in use.
  void in_thread(const std::function<void()>& first, const std::function<void()>& meanwhile) {
    std::barrier both(2);
    std::thread thread([&] {
      first();
      both.arrive_and_wait();
      both.arrive_and_wait();
    });
    both.arrive_and_wait();
    meanwhile();
    both.arrive_and_wait();
    thread.join();
  }
  void allocate_and_free(unsigned n, std::uint64_t bytes) {
    std::vector<void*> blocks;
    for (unsigned i = 0; i < n; ++i) {
      blocks.push_back(quick(bytes));
    }
    for (void* const block : blocks) {
      EXPECT_EQ(end(block), Found::block);
    }
  }
};

TEST(Uses, each_memory_has_a_use_that_no_other_heap_serves) {
  std::set<std::uint64_t> all = {1, 2, 3};
  // The last kind is none, and its lowest bits are those of numa.
  for (const Kind kind : {Kind::numa, Kind::pmem, Kind{256 + static_cast<int>(Kind::numa)}}) {
    for (const std::uint16_t index : {0, 1, 2, 7, 1023, 65535}) {
      const Use use = use_of({kind, index});
      EXPECT_TRUE(serves(static_cast<std::uint64_t>(use), use));
      for (const std::uint64_t other : all) {
        EXPECT_FALSE(serves(other, use)) << other;
        EXPECT_FALSE(serves(static_cast<std::uint64_t>(use), Use{other})) << other;
      }
      EXPECT_TRUE(all.insert(static_cast<std::uint64_t>(use)).second);
    }
  }
  EXPECT_TRUE(serves(3, Use::fixed));
  EXPECT_TRUE(serves(3, Use::any));
  EXPECT_FALSE(serves(1, Use::any));
}

TEST_F(Threads, kept_block_is_not_used_and_a_second_free_is_found) {
  void* const block = quick(64);
  EXPECT_EQ(heap->books().used, 64u);
  EXPECT_EQ(end(block), Found::block);
  EXPECT_EQ(heap->books().used, 0u);
  EXPECT_GT(Magazines::bytes_in(*heap), 0u);
  EXPECT_EQ(end(block), Found::freed);
  in_thread([&] { EXPECT_EQ(end(block), Found::freed); }, [] {});
  // It was never given out, but lies in the magazine.
  EXPECT_EQ(end(static_cast<std::byte*>(block) + 64), Found::freed);
  EXPECT_EQ(end(static_cast<std::byte*>(block) + 16), Found::inside);
  std::uint64_t bytes = 0;
  EXPECT_EQ(Heap::measure(*table.find(block), block, bytes), Found::freed);
  EXPECT_EQ(quick(64), block);  // The last block that was kept.
  EXPECT_EQ(end(block), Found::block);
  int local = 0;
  EXPECT_EQ(end(&local), Found::foreign);
}

TEST_F(Threads, magazine_is_full_then_half_of_it_goes_back) {
  allocate_and_free(10'000, 64);
  EXPECT_LE(Magazines::bytes_in(*heap), kMagazineBlocks * 64u);
  EXPECT_TRUE(heap->test_consistent());
  for (std::uint64_t bytes = 1; bytes <= 2 * kLargestKept; ++bytes) {
    allocate_and_free(40, bytes);
  }
  EXPECT_LE(Magazines::bytes_in(*heap), kMagazinesBytes);
  EXPECT_EQ(heap->books().used, 0u);
}

TEST_F(Threads, two_threads_free_one_block_then_one_of_them_succeeds) {
  constexpr int kRounds = 100;
  std::array<void*, 200> blocks{};
  std::atomic<std::size_t> freed{0};
  std::barrier all(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        all.arrive_and_wait();
        for (void* const block : blocks) {
          freed += end(block) == Found::block ? 1 : 0;
        }
        all.arrive_and_wait();
      }
    });
  }
  for (int i = 0; i < kRounds; ++i) {
    for (void*& block : blocks) {
      block = quick(64);
    }
    freed = 0;
    all.arrive_and_wait();
    all.arrive_and_wait();
    EXPECT_EQ(freed, blocks.size());
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(heap->books().used, 0u);
}

TEST_F(Threads, thread_ends_then_its_blocks_are_free) {
  for (int i = 0; i < 40; ++i) {  // More threads than may have magazines at once.
    std::thread([&] {
      allocate_and_free(300, 48);
      if (i % 2 == 0) {
        ::pthread_exit(nullptr);
      }
    }).join();
    ASSERT_EQ(Magazines::bytes_in(*heap), 0u);
  }
  EXPECT_EQ(heap->books().used, 0u);
}

// The destructors of keys run in the order of the keys, several times, as long as there are values.
TEST_F(Threads, heap_is_used_by_later_destructors_of_the_thread) {
  if (kThreadSanitizer) {
    GTEST_SKIP()
        << "the thread sanitizer forgets a thread before the last destructors of its keys run";
  }
  static Threads* test = nullptr;
  static thread_local int rounds = 0;
  test = this;
  pthread_key_t key{};
  ASSERT_EQ(::pthread_key_create(&key,
                                 [](void* value) {
                                   test->allocate_and_free(100, 64);
                                   if (++rounds < 4) {
                                     ::pthread_setspecific(*static_cast<pthread_key_t*>(value),
                                                           value);
                                   }
                                 }),
            0);
  std::thread([&] {
    allocate_and_free(100, 64);
    ::pthread_setspecific(key, &key);
  }).join();
  EXPECT_EQ(::pthread_key_delete(key), 0);
  EXPECT_EQ(Magazines::bytes_in(*heap), 0u);
  EXPECT_EQ(heap->books().used, 0u);
}

TEST_F(Threads, heap_ends_then_magazines_of_other_threads_are_empty) {
  in_thread([&] { allocate_and_free(300, 64); },
            [&] {
              allocate_and_free(300, 64);
              heap->end_magazines();
              EXPECT_EQ(Magazines::bytes_in(*heap), 0u);
              EXPECT_EQ(Magazines::take(this, Use::any, kept_class(64)), nullptr);
              void* const block = allocate(64);
              EXPECT_EQ(Magazines::take(this, Use::any, kept_class(64)), nullptr);
              EXPECT_EQ(free(block), Found::block);
              EXPECT_EQ(Magazines::bytes_in(*heap), 0u);
              EXPECT_TRUE(heap->test_consistent());
              source.end_all();
              open({.chunk_bytes = 256 * kKiB});  // It has the same owner.
              EXPECT_EQ(Magazines::take(this, Use::any, kept_class(64)), nullptr);
              allocate_and_free(300, 64);
              EXPECT_GT(Magazines::bytes_in(*heap), 0u);
            });
}

TEST_F(Threads, pressed_heap_keeps_nothing_until_it_is_released) {
  in_thread([&] { allocate_and_free(300, 64); },
            [&] {
              allocate_and_free(300, 64);
              EXPECT_GT(source.held, 0u);
              EXPECT_TRUE(heap->press(true));
              EXPECT_EQ(source.held, 0u);
              allocate_and_free(300, 64);
              EXPECT_EQ(Magazines::bytes_in(*heap), 0u);
              EXPECT_FALSE(heap->press(false));
              allocate_and_free(300, 64);
              EXPECT_GT(Magazines::bytes_in(*heap), 0u);
            });
}

TEST_F(Threads, source_is_full_then_what_threads_keep_is_used_first) {
  source.limit = 256 * kKiB;
  in_thread([&] { allocate_and_free(300, 64); },
            [&] {
              EXPECT_GT(Magazines::bytes_in(*heap), 0u);
              void* const large = allocate(256 * kKiB);
              ASSERT_NE(large, nullptr);
              EXPECT_EQ(Magazines::bytes_in(*heap), 0u);
              EXPECT_EQ(free(large), Found::block);
            });
  // All of a chunk as small blocks, of which another thread keeps some.
  std::vector<void*> blocks;
  in_thread([&] { allocate_and_free(10, 1024); },
            [&] {
              for (Result<void*> block = heap->allocate(1024, 16); block.ok();
                   block = heap->allocate(1024, 16)) {
                blocks.push_back(*block);
              }
            });
  EXPECT_EQ(blocks.size(), 256u);
  for (void* const block : blocks) {
    EXPECT_EQ(end(block), Found::block);
  }
}

TEST_F(Threads, child_of_fork_frees_what_threads_of_the_parent_kept) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  in_thread([&] { allocate_and_free(300, 64); },
            [&] {
              void* const mine = quick(64);
              allocate_and_free(300, 128);
              Magazines::before_fork();
              heap->before_fork();
              table.before_fork();
              // Without the handlers of fork(), which a context in this process has registered.
              const pid_t child = ::_Fork();
              table.after_fork();
              heap->after_fork();
              if (child == 0) {
                Magazines::after_fork_in_child();
              }
              Magazines::after_fork();
              if (child == 0) {
                heap->recover();
                bool good = heap->books().used == 64 && heap->test_consistent();
                allocate_and_free(300, 64);
                good = good && end(mine) == Found::block && end(mine) == Found::freed &&
                       heap->books().used == 0 && heap->test_consistent() && !HasFailure();
                ::_exit(good ? 0 : 1);
              }
              int status = 0;
              ASSERT_EQ(::waitpid(child, &status, 0), child);
              EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
              EXPECT_GT(Magazines::bytes_in(*heap), 0u);
              EXPECT_EQ(end(mine), Found::block);
            });
}

// Threads begin and end, allocate and free each other's blocks, while the heap is pressed and the
// source refuses. Each block has one holder, which is written into it.
TEST_F(Threads, random_calls_of_many_threads_agree_with_a_model) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kLives = 4;
  constexpr int kCalls = (kThreadSanitizer || kAddressSanitizer) ? 4'000 : 30'000;
  std::vector<std::atomic<std::uint64_t*>> slots(512);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> live{0};  // Bytes, as the heap rounds them.
  std::atomic<bool> stop{false};
  const auto size_of_block = [&](void* block) {
    std::uint64_t bytes = 0;
    wrong += Heap::measure(*table.find(block), block, bytes) != Found::block ? 1 : 0;
    return bytes;
  };
  const auto finish = [&](std::uint64_t* block) {
    if (block != nullptr) {
      wrong += *block != reinterpret_cast<std::uintptr_t>(block) ? 1 : 0;
      *block = 0;
      live -= size_of_block(block);
      wrong += end(block) != Found::block ? 1 : 0;
    }
  };
  const auto life = [&](std::uint64_t of_life) {
    std::mt19937_64 dice(of_life);
    for (int i = 0; i < kCalls; ++i) {
      const std::uint64_t most = dice() % 64 == 0 ? 40'000 : dice() % 8 == 0 ? 3000 : 300;
      const std::uint64_t bytes = 8 + dice() % most;
      Result<void*> made(nullptr);
      void* const kept = bytes <= kLargestKept && dice() % 4 != 0
                             ? Magazines::take(this, Use::any, kept_class(bytes))
                             : nullptr;
      made =
          kept != nullptr ? Result<void*>(kept) : heap->allocate(bytes, dice() % 16 == 0 ? 64 : 16);
      if (!made.ok()) {
        wrong += made.code() != Code::no_capacity ? 1 : 0;
        finish(slots[dice() % slots.size()].exchange(nullptr));
        continue;
      }
      auto* const block = static_cast<std::uint64_t*>(*made);
      *block = reinterpret_cast<std::uintptr_t>(block);
      live += size_of_block(block);
      finish(slots[dice() % slots.size()].exchange(block));
    }
  };
  source.limit = 3 * kMiB;
  std::thread presser([&] {
    std::mt19937_64 dice(seed);
    while (!stop) {
      (void)(dice() % 2 == 0 ? heap->press(true) : heap->give_back_kept());
      std::this_thread::sleep_for(std::chrono::microseconds(dice() % 500));
      (void)heap->press(false);
      std::this_thread::sleep_for(std::chrono::microseconds(dice() % 2000));
    }
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t n = 0; n < kLives; ++n) {
        std::thread(life, seed + t * 100 + n).join();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  stop = true;
  presser.join();
  EXPECT_EQ(heap->books().used, live);
  EXPECT_TRUE(heap->test_consistent());
  EXPECT_EQ(heap->books().held, source.held);
  for (auto& slot : slots) {
    finish(slot.exchange(nullptr));
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(heap->books().used, 0u);
  (void)heap->give_back_kept();
  EXPECT_EQ(source.held, 0u);
}

}  // namespace
}  // namespace tiermem::heap

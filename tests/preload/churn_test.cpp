// Threads allocate, write, check, resize, advise and free blocks of every class at random. Their
// live bytes are four times the memory. TIERMEM_TEST_SECONDS makes the test longer.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {
namespace {

struct Block {
  std::mutex mutex;
  void* data = nullptr;  // Guarded by mutex, like all members below.
  std::size_t bytes = 0;
  std::uint64_t seed = 0;
  bool mapped = false;
};

class Churn {
 public:
  explicit Churn(std::size_t blocks) : blocks_(blocks) {}
  ~Churn() {
    for (Block& block : blocks_) {
      give_up(block);
    }
  }

  void run(std::uint64_t seed, std::chrono::steady_clock::time_point until) {
    std::mt19937_64 random(seed);
    while (std::chrono::steady_clock::now() < until) {
      Block& block = blocks_[random() % blocks_.size()];
      const std::lock_guard lock(block.mutex);
      one_step(block, random);
    }
  }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t steps() const { return steps_; }

 private:
  void one_step(Block& block, std::mt19937_64& random) {
    ++steps_;
    switch (random() % 6) {
      case 0:
        give_up(block);
        break;
      case 1:
        resize(block, random);
        break;
      case 2:
        forget(block);
        break;
      default:
        if (block.data == nullptr) {
          make(block, random);
        } else {
          check(block);
          fill(block, random());
        }
    }
  }

  // Most blocks are small, and most bytes are in large blocks.
  static std::size_t some_bytes(std::mt19937_64& random) {
    return (std::size_t{64} << (random() % 17)) + random() % 100 * 8;
  }

  void make(Block& block, std::mt19937_64& random) {
    const std::size_t bytes = some_bytes(random);
    block.mapped = bytes >= kMiB && random() % 2 == 0;
    if (block.mapped) {
      void* const at =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      block.data = at == MAP_FAILED ? nullptr : at;
      wrong_ += at == MAP_FAILED || nonzero_words(at, bytes) != 0;
    } else {
      block.data = random() % 2 == 0 ? malloc(bytes) : aligned_alloc(64, (bytes + 63) / 64 * 64);
      wrong_ += block.data == nullptr;
    }
    block.bytes = bytes;
    fill(block, random());
  }
  void fill(Block& block, std::uint64_t seed) {
    block.seed = seed;
    put_words(block.data, block.bytes, seed);
  }
  void check(const Block& block) { wrong_ += wrong_words(block.data, block.bytes, block.seed); }

  void resize(Block& block, std::mt19937_64& random) {
    if (block.data == nullptr) {
      return;
    }
    const std::size_t bytes = some_bytes(random);
    const std::size_t kept = std::min(bytes, block.bytes);
    if (block.mapped) {
      void* const at = mremap(block.data, block.bytes, bytes, MREMAP_MAYMOVE);
      wrong_ += at == MAP_FAILED;
      block.data = at == MAP_FAILED ? block.data : at;
      if (at == MAP_FAILED) {
        return;
      }
    } else {
      block.data = realloc(block.data, bytes);
    }
    wrong_ += wrong_words(block.data, kept / 8 * 8, block.seed);
    block.bytes = bytes;
    fill(block, random());
  }

  // Advises away whole pages of a mapping, which are zeros afterwards.
  void forget(Block& block) {
    if (block.data == nullptr || !block.mapped) {
      return;
    }
    check(block);
    const std::size_t half = block.bytes / 2 / 4096 * 4096;
    wrong_ += madvise(block.data, half, MADV_DONTNEED) != 0;
    wrong_ += nonzero_words(block.data, half);
    fill(block, block.seed);
  }

  void give_up(Block& block) {
    if (block.data == nullptr) {
      return;
    }
    check(block);
    if (block.mapped) {
      munmap(block.data, block.bytes);
    } else {
      free(block.data);
    }
    block.data = nullptr;
  }

  std::vector<Block> blocks_;
  std::atomic<std::uint64_t> wrong_{0}, steps_{0};
};

TEST(Churn, threads_with_four_times_the_memory_lose_nothing) {
  const char* const text = getenv("TIERMEM_TEST_SECONDS");
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(text != nullptr ? atoi(text) : 4);
  // The mean block has about 1 MiB.
  Churn churn(4 * kBudget / kMiB);
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    threads.emplace_back([&, seed] { churn.run(seed, until); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(churn.wrong(), 0u);
  EXPECT_GT(churn.steps(), 100u);
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
}

}  // namespace
}  // namespace tiermem::test

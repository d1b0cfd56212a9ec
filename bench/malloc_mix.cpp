// Blocks with random lifetimes.
#include "bench/malloc_mix.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "bench/clock.hpp"

namespace tiermem::bench {
namespace {

// Blocks per thread: 80 MiB, well above the limit of plain memory.
constexpr std::size_t kLive = 200'000;
constexpr std::uint64_t kPairs = 3'000'000;

struct Block {
  std::uint64_t* data = nullptr;
  std::uint64_t mark = 0;
};

/// Nine of ten are up to 512 bytes, one of a hundred up to 16 KiB.
std::size_t size_of(std::uint64_t chance) {
  const std::uint64_t kind = chance % 100;
  const std::uint64_t most = kind < 90 ? 512 : kind < 99 ? 2048 : 16384;
  return sizeof(std::uint64_t) * (2 + (chance >> 8) % (most / sizeof(std::uint64_t) - 1));
}

/// The first and the last word are written and checked.
bool renew(Block& block, std::uint64_t chance) {
  const bool right = block.data == nullptr || block.data[0] == block.mark;
  std::free(block.data);
  const std::size_t size = size_of(chance);
  block.data = static_cast<std::uint64_t*>(std::malloc(size));
  if (block.data == nullptr) {
    return false;
  }
  block.mark = chance;
  block.data[size / sizeof(std::uint64_t) - 1] = ~chance;
  block.data[0] = chance;
  return right;
}

}  // namespace

double malloc_mix(unsigned threads) {
  std::atomic<unsigned> ready{0};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<double> begun(threads), ended(threads);
  const auto part = [&](unsigned thread) {
    std::vector<Block> live(kLive);
    std::mt19937_64 dice(thread + 1);
    std::uint64_t bad = 0;
    for (Block& block : live) {
      bad += renew(block, dice()) ? 0 : 1;
    }
    ++ready;
    while (ready != threads) {
      std::this_thread::yield();
    }
    begun[thread] = now_seconds();
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      bad += renew(live[dice() % kLive], dice()) ? 0 : 1;
    }
    ended[thread] = now_seconds();
    for (const Block& block : live) {
      bad += block.data == nullptr || block.data[0] != block.mark ? 1 : 0;
      std::free(block.data);
    }
    wrong += bad;
  };
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < threads; ++thread) {
    others.emplace_back(part, thread);
  }
  part(0);
  for (std::thread& other : others) {
    other.join();
  }
  double rate = 0;
  for (unsigned thread = 0; thread < threads; ++thread) {
    rate += static_cast<double>(kPairs) / (ended[thread] - begun[thread]) / 1e6;
  }
  return wrong == 0 ? rate : 0;
}

}  // namespace tiermem::bench

// The heap under the preload library while jemalloc gives freed memory back. jemalloc does that
// some seconds after a free, by a clock that nothing else in the process reads. Here it is the
// test's.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "preload/inner.hpp"
#include "preload/words.hpp"

namespace tiermem::test {
namespace {

std::atomic<long> g_seconds_later{0};  // Added to CLOCK_MONOTONIC_COARSE.

int call_kernel(clockid_t clock, timespec* now) {
  return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
}
using Clock = int (*)(clockid_t, timespec*);
// Null before main: to look it up may allocate.
const auto g_libcs = reinterpret_cast<Clock>(dlsym(RTLD_NEXT, "clock_gettime"));

}  // namespace
}  // namespace tiermem::test

// The program's own function takes the place of libc's, in the library too.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  using namespace tiermem::test;
  const int result = g_libcs != nullptr ? g_libcs(clock, now) : call_kernel(clock, now);
  now->tv_sec += clock == CLOCK_MONOTONIC_COARSE ? g_seconds_later.load() : 0;
  return result;
}

namespace tiermem::test {
namespace {

constexpr std::uintptr_t kPage = 4096, kSmallExtent = 64 << 10;
constexpr std::size_t kTick = 40 << 10;  // A block that is in no thread's cache.

/// A block that is written whole. jemalloc puts a large block at any offset in its first page, and
/// gives it one page more for that.
struct Block {
  explicit Block(std::size_t bytes) : at(malloc(bytes)), length(malloc_usable_size(at)) {
    memset(at, 0x5A, length);
  }
  std::uintptr_t first_page() const { return reinterpret_cast<std::uintptr_t>(at) / kPage * kPage; }
  std::uintptr_t end() const { return first_page() + length + kPage; }
  void* at;
  std::size_t length;
};

struct Extents {
  std::vector<std::uintptr_t> free, partly_free;
};

/// Finds the extents that the blocks fill.
Extents extents_of(const std::vector<Block>& live, const std::vector<Block>& freed) {
  std::map<std::uintptr_t, bool> is_live;  // By page.
  for (const auto* const blocks : {&live, &freed}) {
    for (const Block& block : *blocks) {
      for (std::uintptr_t page = block.first_page(); page < block.end(); page += kPage) {
        is_live.emplace(page, blocks == &live);
      }
    }
  }
  Extents extents;
  for (const auto& [first, unused] : is_live) {
    if (first % kSmallExtent != 0) {
      continue;
    }
    const auto begin = is_live.find(first), end = is_live.lower_bound(first + kSmallExtent);
    const auto known = static_cast<std::uintptr_t>(std::distance(begin, end));
    const auto of_live = static_cast<std::uintptr_t>(
        std::count_if(begin, end, [](const auto& page) { return page.second; }));
    if (known == kSmallExtent / kPage && of_live != known) {
      (of_live == 0 ? extents.free : extents.partly_free).push_back(first);
    }
  }
  return extents;
}

unsigned present_pages(std::uintptr_t extent) {
  unsigned char present[kSmallExtent / kPage];
  EXPECT_EQ(mincore(reinterpret_cast<void*>(extent), kSmallExtent, present), 0);
  return static_cast<unsigned>(std::count_if(std::begin(present), std::end(present),
                                             [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(Inner, DISABLED_purges_freed_blocks) {
  std::vector<Block> live, freed;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    live.emplace_back((40 + 8 * (random() % 3)) << 10);
    freed.emplace_back((160 + 32 * (random() % 3)) << 10);
  }
  Extents extents = extents_of(live, freed);
  std::map<std::uintptr_t, unsigned> present;
  for (const std::uintptr_t extent : extents.partly_free) {
    present[extent] = present_pages(extent);
    EXPECT_GE(present[extent], kSmallExtent / kPage - 4);
  }
  for (const Block& block : freed) {
    free(block.at);
  }
  // jemalloc looks at the clock after about a thousand calls. It may put these blocks among the
  // freed ones.
  const auto is_emptied = [](std::uintptr_t extent) { return present_pages(extent) == 0; };
  for (int tries = 0; tries < 100'000 && !extents.free.empty() && !is_emptied(extents.free.back());
       ++tries) {
    ++g_seconds_later;
    const auto block = reinterpret_cast<std::uintptr_t>(malloc(kTick));
    const auto is_used = [&](std::uintptr_t extent) {
      return extent < block + kTick + kPage && block < extent + kSmallExtent;
    };
    std::erase_if(extents.free, is_used);
    std::erase_if(extents.partly_free, is_used);
    free(reinterpret_cast<void*>(block));
  }
  ASSERT_GE(extents.free.size(), 10u);
  ASSERT_GE(extents.partly_free.size(), 5u);
  for (const std::uintptr_t extent : extents.free) {
    EXPECT_TRUE(is_emptied(extent));
  }
  for (const std::uintptr_t extent : extents.partly_free) {
    EXPECT_EQ(present_pages(extent), present[extent]);
  }
  for (const Block& block : live) {
    const auto* const bytes = static_cast<char*>(block.at);
    EXPECT_EQ(std::count(bytes, bytes + block.length, 0x5A),
              static_cast<std::ptrdiff_t>(block.length));
    free(block.at);
  }
}

// Emptying an extent in parts would cost it more than it saves.
TEST(Heap, freed_memory_is_emptied_by_whole_extents) {
  const End end = run_inner("purges_freed_blocks", {"TIERMEM_DRAM=256M"});
  EXPECT_TRUE(passed(end)) << end.output;
}

TEST(Heap, blocks_keep_their_bytes_while_memory_beside_them_is_purged) {
  struct Held {
    void* at;
    std::size_t bytes;
    std::uint64_t seed;
  };
  std::mt19937_64 random(11);
  std::vector<Held> held;
  std::uint64_t wrong = 0;
  for (std::uint64_t step = 1; step <= 6000; ++step) {
    for (int tick = 0; tick < 100; ++tick) {
      g_seconds_later += 10;  // All that was freed is to be given back.
      free(malloc(kTick));
    }
    const bool medium = random() % 8 == 0;
    const std::size_t bytes =
        medium ? (256 << 10) + random() % (kMiB / 8) * 8 : (16 << 10) + random() % (200 << 7) * 8;
    void* const block = malloc(bytes);
    ASSERT_NE(block, nullptr);
    put_words(block, bytes, step);
    held.push_back({block, bytes, step});
    if (held.size() > 200) {
      std::swap(held[random() % held.size()], held.back());
      wrong += wrong_words(held.back().at, held.back().bytes, held.back().seed);
      free(held.back().at);
      held.pop_back();
    }
  }
  for (const Held& block : held) {
    wrong += wrong_words(block.at, block.bytes, block.seed);
    free(block.at);
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace tiermem::test

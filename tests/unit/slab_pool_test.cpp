// Chunks cut into small frames.
#include "tier/slab_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{2} << 20;

TEST(SlabPool, a_chunk_is_cut_without_overlap) {
  FramePool chunks(kChunk, {});
  SlabPool slab(4096, chunks);
  EXPECT_EQ(slab.take(0), kNoFrame);
  const std::uint32_t chunk = chunks.take_fresh(0);
  slab.add(chunk);
  std::set<std::byte*> homes;
  for (int i = 0; i < 512; ++i) {
    const std::uint32_t index = slab.take(0);
    ASSERT_NE(index, kNoFrame);
    EXPECT_EQ(slab.chunk_of(index), chunk);
    homes.insert(slab.home(index));
  }
  EXPECT_EQ(slab.take(0), kNoFrame);
  EXPECT_EQ(homes.size(), 512U);
  EXPECT_EQ(*homes.begin(), chunks.home(chunk));
  EXPECT_EQ(*homes.rbegin(), chunks.home(chunk) + kChunk - 4096);
}

TEST(SlabPool, the_last_frame_returned_frees_the_chunk_with_its_tag) {
  FramePool chunks(kChunk, {});
  SlabPool slab(kChunk / 4, chunks);
  for (const bool mixed : {false, true}) {
    const std::uint32_t chunk = chunks.take_fresh(7);
    slab.add(chunk);
    const std::uint32_t a = slab.take(7);
    const std::uint32_t b = slab.take(mixed ? 8 : 7);
    slab.chunk(a).pages.store(true);
    slab.slot(a).tag = slab.slot(a).owner;
    slab.slot(b).tag = slab.slot(b).owner;
    EXPECT_EQ(slab.give_back(a), kNoFrame);
    EXPECT_EQ(slab.give_back(b), chunk);
    EXPECT_TRUE(chunks.frame(chunk).pages);
    EXPECT_EQ(chunks.frame(chunk).tag, mixed ? kTagMixed : 7);
    EXPECT_EQ(slab.take(7), kNoFrame) << "the chunk is the caller's again";
    chunks.frame(chunk).pages = false;
    chunks.give_back(chunk);
  }
}

TEST(SlabPool, a_slot_with_the_domains_own_bytes_is_preferred) {
  FramePool chunks(kChunk, {});
  SlabPool slab(kChunk / 8, chunks);
  slab.add(chunks.take_fresh(1));
  std::vector<std::uint32_t> held;
  for (std::uint32_t domain = 0; domain < 8; ++domain) {
    held.push_back(slab.take(domain));
    slab.slot(held.back()).tag = domain;
  }
  for (std::size_t i = 1; i < 8; ++i) {
    slab.give_back(held[i]);
  }
  EXPECT_EQ(slab.take(5), held[5]);
  EXPECT_EQ(slab.take(2), held[2]);
}

// Property: frames never overlap, and a chunk is returned exactly when its last frame is.
TEST(SlabPool, random_taking_and_giving_keeps_chunks_apart) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  FramePool chunks(kChunk, {});
  SlabPool slab(kChunk / 16, chunks);
  std::vector<std::uint32_t> held;
  std::map<std::uint32_t, int> in_chunk;
  for (int round = 0; round < 20'000; ++round) {
    if (random() % 2 == 0) {
      std::uint32_t index = slab.take(0);
      if (index == kNoFrame) {
        slab.add(chunks.take_fresh(0));
        index = slab.take(0);
      }
      ASSERT_EQ(std::count(held.begin(), held.end(), index), 0);
      held.push_back(index);
      ++in_chunk[slab.chunk_of(index)];
    } else if (!held.empty()) {
      const std::size_t which = random() % held.size();
      const std::uint32_t index = held[which];
      held[which] = held.back();
      held.pop_back();
      const std::uint32_t chunk = slab.chunk_of(index);
      const bool last = --in_chunk[chunk] == 0;
      ASSERT_EQ(slab.give_back(index), last ? chunk : kNoFrame);
      if (last) {
        chunks.give_back(chunk);
      }
    }
  }
}

}  // namespace
}  // namespace tiermem

// Records of the pages in slots, compared with a plain model of bytes.
#include "residency/slot_pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

struct Destroy {
  void operator()(SlotPages* pages) const { SlotPages::destroy(pages); }
};
using Owned = std::unique_ptr<SlotPages, Destroy>;

Owned make(std::uint64_t extent_bytes) {
  return Owned(SlotPages::make(extent_bytes));
}

TEST(SlotPages, an_extent_of_one_page_has_no_record) {
  EXPECT_EQ(SlotPages::make(4096), nullptr);
}

TEST(SlotPages, pages_have_4_kib_up_to_extents_of_2_mib_and_a_512th_above) {
  EXPECT_EQ(make(8 * kKiB)->count, 2u);
  EXPECT_EQ(make(64 * kKiB)->page_bytes, 4096u);
  EXPECT_EQ(make(2 * kMiB)->count, 512u);
  EXPECT_EQ(make(2 * kMiB)->page_bytes, 4096u);
  EXPECT_EQ(make(64 * kMiB)->count, 512u);
  EXPECT_EQ(make(64 * kMiB)->page_bytes, 128 * kKiB);
}

TEST(SlotPages, the_slot_is_the_next_power_of_two_and_saves_up_to_a_half) {
  Owned pages = make(64 * kKiB);
  EXPECT_EQ(pages->slot_bytes(), 4 * kKiB);
  for (unsigned page = 0; page < 16; ++page) {
    pages->add(page);
    const std::uint64_t expected = page < 1 ? 4 : page < 2 ? 8 : page < 4 ? 16 : page < 8 ? 32 : 64;
    EXPECT_EQ(pages->slot_bytes(), expected * kKiB);
    EXPECT_EQ(pages->saves(), page < 8);
  }
}

TEST(SlotPages, one_byte_anywhere_in_a_page_is_found) {
  std::vector<std::byte> extent(64 * kKiB);
  Owned pages = make(extent.size());
  for (std::size_t at = 0; at < extent.size(); at += 61) {
    extent[at] = std::byte{1};
    pages->measure(extent.data());
    ASSERT_EQ(pages->stored, 1u);
    ASSERT_TRUE(pages->has(static_cast<unsigned>(at / 4096)));
    extent[at] = std::byte{0};
  }
  pages->measure(extent.data());
  EXPECT_EQ(pages->stored, 0u);
}

TEST(SlotPages, an_extent_looks_full_only_with_more_than_half_of_its_samples) {
  std::vector<std::byte> extent(2 * kMiB);
  EXPECT_FALSE(SlotPages::look_full(extent.data(), extent.size()));
  extent[0] = extent[kMiB] = std::byte{1};
  EXPECT_FALSE(SlotPages::look_full(extent.data(), extent.size()));
  std::fill(extent.begin(), extent.begin() + kMiB, std::byte{1});
  EXPECT_FALSE(SlotPages::look_full(extent.data(), extent.size()));
  std::fill(extent.begin(), extent.end(), std::byte{1});
  EXPECT_TRUE(SlotPages::look_full(extent.data(), extent.size()));
}

// A slot has only the recorded pages, packed. They are spread to their former places.
TEST(SlotPages, random_extents_are_packed_and_spread_to_the_same_bytes) {
  std::mt19937_64 dice(1);
  for (unsigned round = 0; round < 200; ++round) {
    const std::uint64_t bytes = (8 * kKiB) << dice() % 10;
    std::vector<std::byte> extent(bytes);
    Owned pages = make(bytes);
    const std::uint64_t page = pages->page_bytes;
    const unsigned chance = 1 + dice() % 8;
    for (unsigned i = 0; i < pages->count; ++i) {
      if (dice() % chance == 0) {
        extent[i * page + dice() % page] = static_cast<std::byte>(1 + dice() % 255);
      }
    }
    pages->measure(extent.data());
    // Packs runs of pages, as they are written.
    std::vector<std::byte> slot;
    unsigned counted = 0;
    for (unsigned at = pages->next(0, true); at < pages->count;) {
      const unsigned end = pages->next(at, false);
      ASSERT_EQ(slot.size(), pages->before(at) * page);
      slot.insert(slot.end(), extent.begin() + at * page, extent.begin() + end * page);
      counted += end - at;
      at = pages->next(end, true);
    }
    ASSERT_EQ(counted, pages->stored);
    ASSERT_EQ(pages->before(pages->count), pages->stored);
    // Either the whole extent, or any range that begins and ends with a page of the slot.
    unsigned first = 0;
    unsigned last = pages->count;
    if (round % 2 == 1 && pages->stored != 0) {
      first = pages->next(static_cast<unsigned>(dice() % pages->count), true);
      first = first == pages->count ? pages->next(0, true) : first;
      last = first + 1 + static_cast<unsigned>(dice() % (pages->count - first));
    }
    std::vector<std::byte> landing(bytes, std::byte{0x55});
    const std::size_t in_slot = (pages->before(last) - pages->before(first)) * page;
    std::copy_n(slot.begin() + pages->before(first) * page, in_slot,
                landing.begin() + first * page);
    pages->spread(landing.data(), first, last);
    ASSERT_EQ(std::memcmp(landing.data() + first * page, extent.data() + first * page,
                          (last - first) * page),
              0);
    ASSERT_TRUE(std::all_of(landing.begin(), landing.begin() + first * page,
                            [](std::byte b) { return b == std::byte{0x55}; }));
    ASSERT_TRUE(std::all_of(landing.begin() + last * page, landing.end(),
                            [](std::byte b) { return b == std::byte{0x55}; }));
  }
}

}  // namespace
}  // namespace tiermem

// The slot allocator compared with a model: a list of live intervals for each device. Properties:
// live slots never overlap and lie in the preallocated part. Room is found exactly where the model
// has an aligned hole. All freed room can be allocated again in any other size.

#include "tier/slot_allocator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kMost = ~std::uint64_t{0};

SlotAllocator with_limits(std::vector<std::uint64_t> limits) {
  return SlotAllocator(limits);
}

TEST(SlotAllocator, nothing_is_given_out_before_it_is_preallocated) {
  SlotAllocator slots = with_limits({256 * kMiB});
  EXPECT_FALSE(slots.has_room(0, 2 * kMiB));
  EXPECT_FALSE(slots.allocate(0, 2 * kMiB).valid());
  EXPECT_EQ(slots.growth_for(0, 2 * kMiB, 0, kMost), 64 * kMiB);
  slots.extend(0, 64 * kMiB);
  EXPECT_TRUE(slots.has_room(0, 2 * kMiB));
  const SlotId slot = slots.allocate(0, 2 * kMiB);
  ASSERT_TRUE(slot.valid());
  EXPECT_EQ(SlotAllocator::device_of(slot), 0);
  EXPECT_EQ(SlotAllocator::bytes_of(slot), 2 * kMiB);
  EXPECT_EQ(slots.in_use(0), 2 * kMiB);
}

TEST(SlotAllocator, slot_ids_carry_device_class_and_offset) {
  SlotAllocator slots = with_limits({64 * kMiB, 64 * kMiB, 192 * kMiB});
  slots.extend(2, 192 * kMiB);
  std::vector<std::uint64_t> offsets;
  for (int i = 0; i < 3; ++i) {
    const SlotId slot = slots.allocate(2, 64 * kMiB);
    ASSERT_TRUE(slot.valid());
    EXPECT_EQ(SlotAllocator::device_of(slot), 2);
    EXPECT_EQ(SlotAllocator::bytes_of(slot), 64 * kMiB);
    offsets.push_back(SlotAllocator::offset_of(slot));
  }
  std::sort(offsets.begin(), offsets.end());
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, 64 * kMiB, 128 * kMiB}));
  EXPECT_FALSE(slots.allocate(2, 4 * kKiB).valid());
}

TEST(SlotAllocator, freed_room_serves_every_other_size) {
  SlotAllocator slots = with_limits({64 * kMiB});
  slots.extend(0, 64 * kMiB);
  std::vector<SlotId> small;
  for (SlotId slot = slots.allocate(0, 4 * kKiB); slot.valid();
       slot = slots.allocate(0, 4 * kKiB)) {
    small.push_back(slot);
  }
  EXPECT_EQ(small.size(), 64 * kMiB / (4 * kKiB));
  EXPECT_FALSE(slots.allocate(0, 2 * kMiB).valid());
  // By address: the first 2 MiB become free after the first 512.
  for (std::size_t i = 0; i < 511; ++i) {
    slots.free(small[i]);
  }
  EXPECT_FALSE(slots.allocate(0, 2 * kMiB).valid()) << "one small slot is still in it";
  slots.free(small[511]);
  EXPECT_EQ(SlotAllocator::offset_of(slots.allocate(0, 2 * kMiB)), 0U);
  ASSERT_TRUE(slots.check_invariants().ok());
}

TEST(SlotAllocator, small_slots_fill_holes_before_they_break_large_blocks) {
  SlotAllocator slots = with_limits({128 * kMiB});
  slots.extend(0, 128 * kMiB);
  const SlotId first = slots.allocate(0, 4 * kKiB);
  for (int i = 0; i < 511; ++i) {
    EXPECT_LT(SlotAllocator::offset_of(slots.allocate(0, 4 * kKiB)),
              SlotAllocator::offset_of(first) + 2 * kMiB);
  }
  EXPECT_TRUE(slots.allocate(0, 64 * kMiB).valid());
  for (int i = 0; i < 31; ++i) {
    EXPECT_TRUE(slots.allocate(0, 2 * kMiB).valid());
  }
  EXPECT_FALSE(slots.allocate(0, 4 * kKiB).valid());
}

TEST(SlotAllocator, an_end_inside_a_block_grows_in_place) {
  SlotAllocator slots = with_limits({100 * kMiB});
  slots.extend(0, 3 * kMiB);
  EXPECT_FALSE(slots.has_room(0, 4 * kMiB));
  EXPECT_EQ(slots.growth_for(0, 4 * kMiB, 0, 4 * kMiB), 4 * kMiB);
  const SlotId low = slots.allocate(0, 2 * kMiB);
  ASSERT_TRUE(low.valid());
  EXPECT_FALSE(slots.allocate(0, 2 * kMiB).valid()) << "1 MiB is left";
  EXPECT_EQ(slots.growth_for(0, 2 * kMiB, 0, 4 * kMiB), 4 * kMiB);
  EXPECT_EQ(slots.growth_for(0, 4 * kMiB, 0, 7 * kMiB), 0U) << "the block at 0 is in use";
  EXPECT_EQ(slots.growth_for(0, 4 * kMiB, 0, 8 * kMiB), 8 * kMiB);
  slots.extend(0, 4 * kMiB);
  const SlotId second = slots.allocate(0, 2 * kMiB);
  EXPECT_EQ(SlotAllocator::offset_of(second), 2 * kMiB);
  EXPECT_EQ(slots.growth_for(0, 64 * kMiB, 0, kMost), 0U) << "the limit ends before such a slot";
  slots.free(low);
  slots.free(second);
  EXPECT_EQ(slots.growth_for(0, 64 * kMiB, 0, kMost), 64 * kMiB);
  slots.extend(0, 100 * kMiB);
  EXPECT_EQ(SlotAllocator::offset_of(slots.allocate(0, 64 * kMiB)), 0U);
  ASSERT_TRUE(slots.check_invariants().ok());
}

TEST(SlotAllocator, growth_keeps_to_step_limit_and_the_callers_most) {
  SlotAllocator slots = with_limits({1000 * kMiB});
  EXPECT_EQ(slots.growth_for(0, 4 * kKiB, 256 * kMiB, kMost), 256 * kMiB);
  EXPECT_EQ(slots.growth_for(0, 4 * kKiB, 256 * kMiB, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(slots.growth_for(0, 4 * kKiB, 2000 * kMiB, kMost), 1000 * kMiB);
  EXPECT_EQ(slots.growth_for(0, 2 * kMiB, 0, 2 * kMiB - 1), 0U);
}

/// The model: live slots of a device by offset.
using Live = std::map<std::uint64_t, SlotId>;

/// Returns whether the first `size` bytes contain an aligned hole of this size.
bool has_hole(const Live& live, std::uint64_t size, std::uint64_t bytes) {
  std::uint64_t at = 0;
  for (const auto& [offset, slot] : live) {
    if (offset >= at + bytes) {
      return true;
    }
    at = std::max(at, offset + SlotAllocator::bytes_of(slot));
    at = (at + bytes - 1) / bytes * bytes;
  }
  return at + bytes <= size;
}

void expect_free_interval(const Live& live, SlotId slot) {
  const std::uint64_t begin = SlotAllocator::offset_of(slot);
  const std::uint64_t end = begin + SlotAllocator::bytes_of(slot);
  const auto after = live.lower_bound(begin);
  if (after != live.end()) {
    ASSERT_GE(after->first, end);
  }
  if (after != live.begin()) {
    const auto before = std::prev(after);
    ASSERT_LE(before->first + SlotAllocator::bytes_of(before->second), begin);
  }
}

class SlotAllocatorModel : public ::testing::TestWithParam<unsigned> {};

TEST_P(SlotAllocatorModel, live_slots_never_overlap_and_books_agree) {
  const unsigned seed = GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  SlotAllocator slots = with_limits({300 * kMiB + 12 * kKiB, 64 * kMiB, 10 * kMiB});
  std::array<Live, 3> live;
  std::array<std::uint64_t, 3> in_use{};
  for (int step = 0; step < 8000; ++step) {
    const auto device = static_cast<std::uint16_t>(pick(3));
    const bool filling = step / 1500 % 2 == 0;
    if (pick(10) < (filling ? 7U : 3U)) {
      const std::uint64_t bytes = 4 * kKiB << pick(pick(4) == 0 ? 15 : 11);
      const bool room = slots.has_room(device, bytes);
      const SlotId slot = slots.allocate(device, bytes);
      ASSERT_EQ(slot.valid(), room);
      ASSERT_EQ(room, has_hole(live[device], slots.size(device), bytes)) << bytes;
      if (slot.valid()) {
        ASSERT_EQ(SlotAllocator::device_of(slot), device);
        ASSERT_EQ(SlotAllocator::bytes_of(slot), bytes);
        ASSERT_EQ(SlotAllocator::offset_of(slot) % bytes, 0U);
        ASSERT_LE(SlotAllocator::offset_of(slot) + bytes, slots.size(device));
        ASSERT_NO_FATAL_FAILURE(expect_free_interval(live[device], slot));
        live[device][SlotAllocator::offset_of(slot)] = slot;
        in_use[device] += bytes;
      } else if (const std::uint64_t most = slots.size(device) + pick(80) * kMiB;
                 const std::uint64_t size = slots.growth_for(device, bytes, 0, most)) {
        ASSERT_LE(size, std::min(most, slots.limit(device)));
        slots.extend(device, size);
        ASSERT_TRUE(slots.has_room(device, bytes)) << "growth made no room for " << bytes;
      }
    } else if (!live[device].empty()) {
      auto it = live[device].begin();
      std::advance(
          it, static_cast<std::ptrdiff_t>(pick(std::min<std::size_t>(live[device].size(), 64))));
      in_use[device] -= SlotAllocator::bytes_of(it->second);
      slots.free(it->second);
      live[device].erase(it);
    }
    ASSERT_EQ(slots.in_use(device), in_use[device]);
    if (step % 500 == 0) {
      const Status status = slots.check_invariants();
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  for (std::uint16_t device = 0; device < 3; ++device) {
    for (const auto& [offset, slot] : live[device]) {
      slots.free(slot);
    }
    EXPECT_EQ(slots.in_use(device), 0U);
    // Everything is free again, so the largest class that fits gets all whole chunks.
    const std::uint64_t whole = slots.size(device) / (64 * kMiB);
    for (std::uint64_t i = 0; i < whole; ++i) {
      EXPECT_TRUE(slots.allocate(device, 64 * kMiB).valid());
    }
    EXPECT_FALSE(slots.allocate(device, 64 * kMiB).valid());
  }
  const Status status = slots.check_invariants();
  EXPECT_TRUE(status.ok()) << status.message();
}

INSTANTIATE_TEST_SUITE_P(seeds, SlotAllocatorModel, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace tiermem

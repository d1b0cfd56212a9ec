// Two memories in the host's address space: each has its own budget, and the windows belong to
// both.
#include "tier/host_space.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "dram_fixture.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 2 * kMiB;

class TwoMemories : public ::testing::TestWithParam<Mechanism> {
 protected:
  void SetUp() override {
    HostSpaceOptions options = small_options(8 * kMiB);
    options.memories.push_back({.budget = 4 * kMiB, .place = {Kind::dram, 1}});
    options.mechanism = GetParam();
    auto made = HostSpace::create(options);
    if (!made.ok()) {
      GTEST_SKIP() << made.message();
    }
    space = std::move(*made);
  }
  /// Acquires a populated frame of a memory, for a window.
  FrameId acquire(unsigned number) {
    HostMemory& memory = space->memory(number);
    const FrameId frame = memory.acquire_frame({space->window_pool(kExtent), kExtent, 0});
    EXPECT_TRUE(frame.valid());
    EXPECT_TRUE(memory.populate(frame, false, nullptr).ok());
    return frame;
  }
  std::byte* window(bool mapped) {
    auto reserved = space->reserve_window(2 * kExtent, kExtent, mapped);
    EXPECT_TRUE(reserved.ok()) << reserved.message();
    return *reserved;
  }

  std::unique_ptr<HostSpace> space;
};

TEST_P(TwoMemories, frames_of_both_are_neighbours_in_one_window) {
  std::byte* const at = window(false);
  const std::array<FrameId, 2> frames = {acquire(0), acquire(1)};
  for (unsigned i = 0; i < 2; ++i) {
    fill(space->bytes_at(frames[i], at + i * kExtent), kExtent, i);
    Mechanism used{};
    ASSERT_TRUE(space->map(frames[i], at + i * kExtent, used).ok());
    EXPECT_EQ(space->memory(i).usage().in_use, kExtent);
  }
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_TRUE(holds(at + i * kExtent, kExtent, i));
    ASSERT_TRUE(space->unmap(frames[i], at + i * kExtent).ok());
    space->memory(i).return_frame(frames[i]);
    EXPECT_EQ(space->memory(i).usage().in_use, 0U);
    EXPECT_TRUE(space->memory(i).test_consistent());
  }
  space->release_window(at, 2 * kExtent);
}

// The preload library asks for any address of the program.
TEST_P(TwoMemories, address_is_in_no_window_then_nothing_is_lent_taken_back_or_given_away) {
  std::array<std::byte, 64> own{};
  EXPECT_TRUE(space->lend_window(own.data(), own.size()));
  EXPECT_EQ(space->take_back_window(own.data(), own.size()), EINVAL);
  EXPECT_TRUE(space->give_away(own.data(), own.size()));
  bool is_own = true;
  EXPECT_EQ(space->stretch(own.data(), own.size(), is_own), own.size());
  EXPECT_FALSE(is_own);
}

TEST_P(TwoMemories, part_of_a_window_is_lent_then_it_is_not_own_until_it_is_taken_back) {
  const bool mapped = GetParam() == Mechanism::uffd_move || GetParam() == Mechanism::copy;
  std::byte* const at = window(mapped);
  const auto own = [&](std::uint64_t offset, std::uint64_t bytes) {
    bool is_own = false;
    EXPECT_EQ(space->stretch(at + offset, bytes, is_own), bytes) << offset;
    return is_own;
  };
  ASSERT_TRUE(space->lend_window(at + 65536, 65536));
  EXPECT_TRUE(own(0, 65536));
  EXPECT_FALSE(own(65536, 65536));
  EXPECT_TRUE(own(131072, 65536));
  bool is_own = false;
  EXPECT_EQ(space->stretch(at, 2 * 65536, is_own), 65536U) << "the two parts are not alike";
  EXPECT_EQ(space->take_back_window(at + 65536, 65536), 0);
  EXPECT_TRUE(own(65536, 65536));
}

TEST_P(TwoMemories, one_is_full_then_the_other_still_has_room) {
  const std::array<FrameId, 2> held = {acquire(1), acquire(1)};
  EXPECT_FALSE(space->memory(1).acquire_frame({Pool::locked, kExtent, 0}).valid());
  const FrameId other = acquire(0);
  space->memory(0).return_frame(other);
  for (const FrameId frame : held) {
    space->memory(1).return_frame(frame);
  }
}

TEST_P(TwoMemories, bytes_change_their_memory_then_the_address_in_the_mapped_window_stays) {
  if (!space->maps()) {
    EXPECT_EQ(space->reserve_window(2 * kExtent, kExtent, true).code(), Code::unsupported);
    return;
  }
  std::byte* const at = window(true);
  const FrameId from = acquire(0);
  const FrameId to = acquire(1);
  fill(space->bytes_at(from, at), kExtent, 7);
  ASSERT_TRUE(space->restore(from, at).ok());
  EXPECT_TRUE(holds(at, kExtent, 7));
  ASSERT_TRUE(space->withdraw(from, at).ok());
  std::memcpy(space->bytes_at(to, at), space->bytes_at(from, at), kExtent);
  ASSERT_TRUE(space->restore(to, at).ok());
  space->memory(0).return_frame(from);
  EXPECT_TRUE(holds(at, kExtent, 7));
  EXPECT_EQ(space->memory(0).usage().in_use, 0U);
  EXPECT_EQ(space->memory(1).usage().in_use, kExtent);
  ASSERT_TRUE(space->unmap(to, at).ok());
  space->memory(1).return_frame(to);
  space->release_window(at, 2 * kExtent);
}

INSTANTIATE_TEST_SUITE_P(HostSpace, TwoMemories,
                         ::testing::Values(Mechanism::uffd_move, Mechanism::copy, Mechanism::remap),
                         [](const ::testing::TestParamInfo<Mechanism>& mechanism) -> std::string {
                           return mechanism.param == Mechanism::uffd_move ? "uffd_move"
                                  : mechanism.param == Mechanism::copy    ? "copy"
                                                                          : "remap";
                         });

// Each frame in such a window costs mappings, whichever window it is in. A window that is released
// needs none.
TEST(TrappedWindows, use_at_most_half_of_the_mappings_together) {
  HostSpaceOptions options = small_options(64 * kMiB);
  options.userfault = UserfaultUse::off;
  options.map_limit = 4 * 8 * FrameMapper::kMappingsEach;  // Half: 16 frames of 2 MiB.
  auto made = HostSpace::create(options);
  ASSERT_TRUE(made.ok()) << made.message();
  HostSpace& space = **made;
  if (!space.maps()) {
    GTEST_SKIP() << space.facts().remap_reason;
  }
  const auto reserve = [&](unsigned extents) {
    return space.reserve_window(extents * kExtent, kExtent, true);
  };
  const auto refused = reserve(17);
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_STREQ(refused.status().info()->setting, "vm.max_map_count");
  std::byte* const half = *reserve(8);
  std::byte* const other = *reserve(8);
  EXPECT_EQ(reserve(1).code(), Code::no_capacity);
  space.release_window(half, 8 * kExtent);
  std::byte* const again = *reserve(8);
  EXPECT_EQ(reserve(1).code(), Code::no_capacity);
  space.release_window(other, 8 * kExtent);
  space.release_window(again, 8 * kExtent);
}

// No more frames than the budget has are in windows at the same time.
TEST(TrappedWindows, beyond_the_budget_need_no_more_mappings) {
  HostSpaceOptions options = small_options(16 * kMiB);
  options.userfault = UserfaultUse::off;
  options.map_limit = 2 * 8 * FrameMapper::kMappingsEach;  // Half: 8 frames, as many as there are.
  auto made = HostSpace::create(options);
  ASSERT_TRUE(made.ok()) << made.message();
  if (!(*made)->maps()) {
    GTEST_SKIP() << (*made)->facts().remap_reason;
  }
  EXPECT_TRUE((*made)->reserve_window(1000 * kExtent, kExtent, true).ok());
}

}  // namespace
}  // namespace tiermem

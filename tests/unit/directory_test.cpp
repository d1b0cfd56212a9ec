// The slot copy of an extent, as the directory answers it from the extent's entry and the buffer's
// record.
#include "residency/directory.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 2 * kSmallestExtent;
constexpr SlotId kFirstOfFile{70};

class DirectoryTest : public ::testing::Test {
 protected:
  /// Creates a buffer of eight extents, and begins one of them.
  ExtentRef extent(bool adopted, std::uint32_t number = 0) {
    BufferShape shape;
    shape.bytes = 8 * kExtent;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kExtent));
    shape.extents = 8;
    shape.label = "buffer";
    shape.file = adopted ? kFirstOfFile.value + 1 : 0;
    const Handle handle = *residency.buffers.create(shape);
    const std::uint32_t index = Buffers::index_of(handle);
    const ExtentRef ref = residency.buffers.at(index).first.load() + number;
    directory.begin(ref, index, adopted);
    return ref;
  }
  void give_slot(ExtentRef ref) {
    directory.at(ref).slot = {9};
    directory.at(ref).has_slot = true;
  }
  /// The only copy in memory, written since.
  void make_dirty(ExtentRef ref, unsigned space) {
    directory.word(space, ref).set_phase(Phase::incoming);
    directory.word(space, ref).set_phase(Phase::exclusive);
    directory.word(space, ref).set_dirty();
  }

  Residency residency{4, 64, 2};
  Directory directory{residency};
};

TEST_F(DirectoryTest, extent_owns_no_slot_and_has_no_file_then_there_is_no_slot_copy) {
  const ExtentRef ref = extent(false);
  EXPECT_FALSE(directory.has_slot_copy(ref));
  EXPECT_FALSE(directory.slot_copy(ref).exists());
  EXPECT_FALSE(directory.slot_copy(ref).slot.valid());
}

TEST_F(DirectoryTest, buffer_is_adopted_then_its_extents_are_current_in_the_file) {
  const ExtentRef ref = extent(true, 3);
  EXPECT_TRUE(directory.has_slot_copy(ref));
  const SlotCopy copy = directory.slot_copy(ref);
  EXPECT_TRUE(copy.in_file());
  EXPECT_TRUE(copy.current());
  // Extent 3 is three times two blocks behind the first.
  EXPECT_EQ(copy.slot.value, kFirstOfFile.value + 6);
}

TEST_F(DirectoryTest, adopted_extent_is_written_then_the_file_has_old_bytes) {
  const ExtentRef ref = extent(true);
  make_dirty(ref, 1);
  EXPECT_TRUE(directory.slot_copy(ref).in_file());
  EXPECT_EQ(directory.slot_copy(ref).state, SlotCopy::State::old);
}

TEST_F(DirectoryTest, adopted_extent_owns_a_slot_then_the_slot_takes_the_place_of_the_file) {
  const ExtentRef ref = extent(true);
  give_slot(ref);
  EXPECT_FALSE(directory.slot_copy(ref).in_file());
  EXPECT_TRUE(directory.slot_copy(ref).current());
  EXPECT_EQ(directory.slot_copy(ref).slot, SlotId{9});
}

TEST_F(DirectoryTest, write_into_the_slot_has_begun_then_the_slot_copy_is_partial) {
  const ExtentRef ref = extent(true);
  give_slot(ref);
  make_dirty(ref, kHost);
  EXPECT_EQ(directory.slot_copy(ref).state, SlotCopy::State::old);
  directory.at(ref).slot_stale = true;
  EXPECT_TRUE(directory.slot_copy(ref).partial());
  EXPECT_FALSE(directory.slot_copy(ref).current());
}

}  // namespace
}  // namespace tiermem

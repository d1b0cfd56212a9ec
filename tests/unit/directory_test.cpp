// The slot copy of an extent: what the directory answers, and how it changes.
#include "residency/directory.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <utility>

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
  /// The extent owns a slot, with all of its bytes.
  void give_slot(ExtentRef ref, SlotPages* pages = nullptr) {
    directory.add_slot(ref, 0, {9}, 5, SlotPagesOwner(pages));
    directory.finish_write(ref, sums());
  }
  static ChecksumsOwner sums() { return ChecksumsOwner(Checksums::make(kExtent, kSmallestExtent)); }
  /// The only copy in memory, written since.
  void make_dirty(ExtentRef ref, unsigned space) {
    directory.word(space, ref).set_phase(Phase::incoming);
    directory.word(space, ref).set_phase(Phase::exclusive);
    directory.word(space, ref).set_dirty();
  }

  void TearDown() override {
    directory.each_begun(0, 64, [&](ExtentRef ref) { directory.drop_copy(ref); });
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
  directory.begin_write(ref);
  EXPECT_TRUE(directory.slot_copy(ref).partial());
  EXPECT_FALSE(directory.slot_copy(ref).current());
  EXPECT_FALSE(directory.in_slot(ref));
  directory.cancel_write(ref);
  EXPECT_EQ(directory.slot_copy(ref).state, SlotCopy::State::old);
  EXPECT_TRUE(directory.in_slot(ref));
}

TEST_F(DirectoryTest, slot_is_added_then_it_is_partial_until_it_is_written) {
  const ExtentRef ref = extent(false);
  directory.add_slot(ref, 0, {9}, 5, nullptr);
  EXPECT_TRUE(directory.owns_slot(ref));
  EXPECT_TRUE(directory.slot_copy(ref).partial());
  EXPECT_EQ(directory.slot_copy(ref).stamp, 5u);
  ChecksumsOwner written = sums();
  const Checksums* const recorded = written.get();
  directory.finish_write(ref, std::move(written));
  EXPECT_TRUE(directory.slot_copy(ref).current());
  EXPECT_EQ(directory.at(ref).copy().sums, recorded);
}

TEST_F(DirectoryTest, extent_of_zeros_is_written_then_it_has_no_slot_copy) {
  const ExtentRef ref = extent(false);
  directory.finish_write(ref, sums());
  EXPECT_FALSE(directory.has_slot_copy(ref));
  EXPECT_EQ(directory.at(ref).copy().sums, nullptr);
}

TEST_F(DirectoryTest, adopted_extent_drops_its_slot_then_it_is_in_the_file_without_checksums) {
  const ExtentRef ref = extent(true, 3);
  directory.set_checksums(ref, sums());
  give_slot(ref, SlotPages::make(kExtent));
  directory.drop_copy(ref);
  EXPECT_FALSE(directory.owns_slot(ref));
  EXPECT_TRUE(directory.slot_copy(ref).in_file());
  EXPECT_TRUE(directory.slot_copy(ref).current());
  EXPECT_EQ(directory.slot_copy(ref).slot.value, kFirstOfFile.value + 6);
  EXPECT_EQ(directory.at(ref).copy().sums, nullptr);
  EXPECT_EQ(directory.at(ref).copy().pages, nullptr);
}

TEST_F(DirectoryTest, slot_moves_then_the_other_extent_has_its_records_too) {
  const ExtentRef from = extent(false), to = extent(false);
  give_slot(from, SlotPages::make(kExtent));
  const SlotCopy before = directory.slot_copy(from);
  directory.move_slot(from, to);
  EXPECT_FALSE(directory.has_slot_copy(from));
  const SlotCopy after = directory.slot_copy(to);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_EQ(after.sums, before.sums);
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.stamp, before.stamp);
  EXPECT_TRUE(after.current());
}

class ReplicaTest : public DirectoryTest {
 protected:
  ReplicaTest() { residency.extents.keep_replicas(); }
};

TEST_F(DirectoryTest, extents_keep_no_replicas_then_there_is_none) {
  const ExtentRef ref = extent(false);
  give_slot(ref);
  EXPECT_FALSE(directory.has_replica(ref));
}

TEST_F(ReplicaTest, replica_takes_the_place_of_the_slot_then_what_is_known_of_it_stays) {
  const ExtentRef ref = extent(false);
  give_slot(ref, SlotPages::make(kExtent));
  const SlotCopy before = directory.slot_copy(ref);
  EXPECT_FALSE(directory.has_replica(ref));
  directory.add_replica(ref, 2, {30}, 6);
  ASSERT_TRUE(directory.has_replica(ref));
  EXPECT_EQ(directory.slot_copy(ref).slot, before.slot);
  const SlotReplica gone = directory.use_replica(ref);
  EXPECT_EQ(gone.slot, before.slot);
  EXPECT_EQ(gone.stamp, before.stamp);
  EXPECT_EQ(gone.tier, before.tier);
  EXPECT_FALSE(directory.has_replica(ref));
  const SlotCopy after = directory.slot_copy(ref);
  EXPECT_EQ(after.slot, SlotId{30});
  EXPECT_EQ(after.stamp, 6u);
  EXPECT_EQ(after.tier, 2);
  EXPECT_TRUE(after.current());
  EXPECT_EQ(after.sums, before.sums);
  EXPECT_EQ(after.pages, before.pages);
}

TEST_F(ReplicaTest, slot_moves_then_its_replica_moves_with_it) {
  const ExtentRef from = extent(false), to = extent(false);
  give_slot(from);
  directory.add_replica(from, 1, {30}, 6);
  directory.move_slot(from, to);
  EXPECT_FALSE(directory.has_replica(from));
  ASSERT_TRUE(directory.has_replica(to));
  EXPECT_EQ(directory.drop_replica(to).slot, SlotId{30});
  EXPECT_FALSE(directory.has_replica(to));
  EXPECT_EQ(directory.slot_copy(to).slot, SlotId{9});
}

// The other members use the padding of the copy.
TEST_F(DirectoryTest, slot_copy_changes_then_the_other_members_of_the_extent_stay) {
  const ExtentRef ref = extent(true);
  Extent& entry = directory.at(ref);
  entry.lost_with = 2;
  entry.unwritten = 7;
  entry.stuck = entry.charged = true;
  give_slot(ref);
  directory.drop_copy(ref);
  EXPECT_EQ(entry.lost_with, 2);
  EXPECT_EQ(entry.unwritten, 7);
  EXPECT_TRUE(entry.begun && entry.stuck && entry.charged);
  EXPECT_FALSE(entry.prefetched || entry.writes || entry.bad_once);
}

}  // namespace
}  // namespace tiermem

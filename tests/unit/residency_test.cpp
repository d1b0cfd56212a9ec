// The callers' side alone, on records with phases that the test sets: which calls are refused, that
// nothing stays pinned after a refusal, and that an extra release does no harm.
#include "residency/residency.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

#include "support/pattern.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 4096;

class ResidencyTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBuffers = 4, kExtents = 64;

  BufferShape shape(std::uint32_t extents) {
    BufferShape of;
    of.bytes = extents * kExtent;
    of.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kExtent));
    of.extents = extents;
    of.label = "buffer";
    of.window = memory.data();
    return of;
  }
  Handle resident(std::uint32_t extents) {
    const Handle handle = *residency.buffers.create(shape(extents));
    for (std::uint32_t i = 0; i < extents; ++i) {
      word(handle, i).set_phase(Phase::incoming);
      word(handle, i).set_phase(Phase::exclusive);
    }
    return handle;
  }
  ExtentWord& word(Handle handle, std::uint32_t i) {
    return residency.extents.word(kHost,
                                  residency.buffers.at(Buffers::index_of(handle)).first.load() + i);
  }
  static Access all_of(Handle handle, std::uint32_t mode) { return {handle, 0, 0, mode, {}, 0}; }

  std::vector<std::byte> memory = std::vector<std::byte>(kExtents * kExtent, std::byte{0xEE});
  Residency residency{kBuffers, kExtents, 1};
};

// Extents of a spare buffer. The mover has just taken one of them to give it up.
TEST_F(ResidencyTest, a_spare_buffer_of_which_an_extent_is_leaving_is_left_as_it_is) {
  residency.spares.set_limit(kExtents * kExtent);
  const Handle first = resident(3);
  ASSERT_EQ(residency.make_spare(first), Code::ok);
  const Handle again = residency.reuse_spare(shape(3), true);
  ASSERT_NE(again, 0u);
  ASSERT_TRUE(word(again, 1).try_claim());  // By a thread that has used it since.
  word(again, 1).end_claim(false);
  ASSERT_TRUE(word(again, 1).unpin_read());
  word(again, 2).set_phase(Phase::outgoing);
  ViewRecord view;
  const Access access = all_of(again, kWrite);
  EXPECT_EQ(residency.try_acquire({&access, 1}, {&view, 1}), Code::busy);
  EXPECT_EQ(word(again, 0).load().phase(), Phase::vacant);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(word(again, i).load().pinned()) << i;
  }
  EXPECT_EQ(residency.views.count(), 0u);
  word(again, 2).set_phase(Phase::exclusive);
  EXPECT_EQ(residency.try_acquire({&access, 1}, {&view, 1}), Code::ok);
  EXPECT_EQ(memory[0], std::byte{0}) << "another's bytes are not seen";
  EXPECT_EQ(residency.release({&view, 1}), Code::ok);
}

TEST_F(ResidencyTest, of_a_list_nothing_is_held_where_one_cannot_be_had) {
  const Handle x = resident(2), y = resident(2);
  ASSERT_TRUE(word(y, 1).try_outgoing(true));
  const std::array<Access, 2> list = {all_of(x, kWrite), all_of(y, kRead)};
  std::array<ViewRecord, 2> views;
  EXPECT_EQ(residency.try_acquire(list, views), Code::busy);
  EXPECT_FALSE(word(x, 0).load().pinned());
  EXPECT_FALSE(word(x, 1).load().pinned());
  EXPECT_FALSE(word(y, 0).load().pinned());
  EXPECT_EQ(residency.views.count(), 0u);
}

TEST_F(ResidencyTest, one_unpin_too_many_is_told_and_changes_nothing) {
  const Handle x = resident(1);
  EXPECT_FALSE(word(x, 0).unpin_read());
  EXPECT_FALSE(word(x, 0).unpin_write());
  EXPECT_EQ(word(x, 0).load().readers(), 0u);
  EXPECT_EQ(word(x, 0).load().writers(), 0u);
  ASSERT_EQ(word(x, 0).pin_write(), Pin::ok);
  EXPECT_FALSE(word(x, 0).unpin_read());
  EXPECT_EQ(word(x, 0).load().writers(), 1u);
  EXPECT_TRUE(word(x, 0).unpin_write());
}

TEST_F(ResidencyTest, a_freed_buffer_is_named_by_whoever_resolves_it) {
  const Handle x = resident(1);
  ASSERT_TRUE(residency.buffers.mark_freed(x));
  Span span;
  const Status stale = residency.resolve(all_of(x, kRead), span, "acquire");
  EXPECT_EQ(stale.code(), Code::stale_handle);
  ViewRecord view;
  EXPECT_FALSE(residency.hit(all_of(x, kRead), view));
  EXPECT_EQ(residency.make_spare(x), Code::stale_handle);
}

TEST_F(ResidencyTest, handles_and_extents_are_counted_and_their_end_is_named) {
  std::vector<Handle> all;
  for (std::uint32_t i = 0; i < kBuffers; ++i) {
    all.push_back(resident(1));
  }
  const auto too_many = residency.buffers.create(shape(1));
  EXPECT_EQ(too_many.code(), Code::no_capacity);
  EXPECT_SAYS(too_many, "all 4 buffer handles are in use");
}

// The record behind the last one may be in memory that cannot be written.
TEST_F(ResidencyTest, handle_of_the_record_behind_the_last_one_is_stale) {
  constexpr std::uint32_t kMany = 4096;
  Residency many(kMany, kMany, 1);
  const Handle first = *many.buffers.create(shape(1));
  for (std::uint32_t used = 1; used <= kMany; ++used) {
    const Handle forged = first + used;  // As the first one, of another record.
    ASSERT_EQ(Buffers::index_of(forged), many.buffers.used());
    EXPECT_EQ(many.buffers.find(forged), nullptr);
    EXPECT_FALSE(many.buffers.mark_freed(forged));
    EXPECT_EQ(many.make_spare(forged), Code::stale_handle);
    ASSERT_TRUE(used == kMany || many.buffers.create(shape(1)).ok());
  }
}

TEST_F(ResidencyTest, a_buffer_of_more_extents_than_there_are_says_so) {
  (void)resident(8);
  const auto too_large = residency.buffers.create(shape(kExtents));
  EXPECT_EQ(too_large.code(), Code::no_capacity);
  EXPECT_SAYS(too_large, "8 extents are in use and 64 more would exceed");
  EXPECT_TRUE(residency.buffers.create(shape(8)).ok());
}

}  // namespace
}  // namespace tiermem

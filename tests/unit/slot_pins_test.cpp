// Views that are pinned by their slots: their conditions, the words of their extents, and how the
// mover treats such extents. tests/model/slot_pin_test.cpp has the orders of steps.
#include <gtest/gtest.h>

#include <bit>
#include <thread>
#include <vector>

#include "residency/residency.hpp"
#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

class SlotPins : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 4096;

  SlotPins() {
    residency.bias_each = 1;
    residency.wake = [](void* self) { ++static_cast<SlotPins*>(self)->woken; };
    residency.wake_argument = this;
  }
  Handle resident(std::uint32_t extents) {
    BufferShape shape;
    shape.bytes = extents * kBytes;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kBytes));
    shape.extents = extents;
    shape.label = "buffer";
    shape.window = memory.data();
    const Handle handle = *residency.buffers.create(shape);
    for (std::uint32_t i = 0; i < extents; ++i) {
      word(handle, i).set_phase(Phase::incoming);
      word(handle, i).set_dirty();
      word(handle, i).set_phase(Phase::exclusive);
    }
    return handle;
  }
  ExtentRef ref(Handle handle, std::uint32_t i = 0) {
    return residency.buffers.at(Buffers::index_of(handle)).first.load() + i;
  }
  ExtentWord& word(Handle handle, std::uint32_t i = 0) {
    return residency.extents.word(kHost, ref(handle, i));
  }
  ExtentBits bits(Handle handle, std::uint32_t i = 0) { return word(handle, i).load(); }
  ViewRecord view(Handle handle, std::uint32_t mode = kRead) {
    ViewRecord made;
    EXPECT_TRUE(residency.hit({handle, 0, 0, mode, {}, 0}, made));
    return made;
  }
  // Biases the extents, by a view that counts.
  void bias(Handle handle) { EXPECT_TRUE(residency.end(view(handle))); }
  static bool in_slot(const ViewRecord& view) { return PinnedRun{view.token[1]}.in_slot(); }

  std::vector<std::byte> memory = std::vector<std::byte>(64 * kBytes);
  Residency residency{8, 64, 1};
  int woken = 0;
};

TEST_F(SlotPins, first_view_counts_and_the_next_is_pinned_by_its_slot) {
  const Handle x = resident(3);
  const ViewRecord first = view(x);
  EXPECT_FALSE(in_slot(first));
  EXPECT_TRUE(bits(x, 2).biased());
  const ViewRecord second = view(x, kWrite);
  EXPECT_TRUE(in_slot(second));
  EXPECT_EQ(second.data, memory.data());
  EXPECT_EQ(second.length, 3 * kBytes);
  EXPECT_TRUE(residency.end(first));
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(bits(x, i).counted_pins()) << i;
    EXPECT_TRUE(bits(x, i).pinned()) << i;
    EXPECT_FALSE(word(x, i).try_outgoing(true)) << i;
  }
  EXPECT_TRUE(residency.end(second));
  EXPECT_FALSE(residency.end(second)) << "it was released";
}

TEST_F(SlotPins, by_default_one_view_in_64_of_a_thread_biases) {
  residency.bias_each = Residency(1, 1, 1).bias_each;
  const Handle x = resident(1);
  for (int i = 0; i < 63; ++i) {
    bias(x);
    ASSERT_FALSE(bits(x).biased()) << i;
  }
  bias(x);
  EXPECT_TRUE(bits(x).biased());
}

TEST_F(SlotPins, are_counted_then_the_words_are_exact) {
  const Handle x = resident(2);
  bias(x);
  const ViewRecord reader = view(x), writer = view(x, kWrite);
  residency.count_slot_pins(ref(x), 1);
  EXPECT_EQ(bits(x).readers(), 1u);
  EXPECT_EQ(bits(x).writers(), 1u);
  EXPECT_FALSE(bits(x).slot_pins());
  EXPECT_EQ(bits(x, 1).readers(), 1u) << "the pins of a view are counted together";
  EXPECT_TRUE(bits(x, 1).slot_pins()) << "it was not asked for";
  residency.count_slot_pins(ref(x), 2);
  EXPECT_EQ(bits(x).readers(), 1u) << "once";
  EXPECT_FALSE(bits(x, 1).slot_pins());
  EXPECT_TRUE(residency.end(writer));
  EXPECT_TRUE(residency.end(reader));
  EXPECT_FALSE(residency.end(reader));
  EXPECT_FALSE(bits(x).pinned());
  EXPECT_FALSE(bits(x, 1).pinned());
}

TEST_F(SlotPins, of_other_extents_are_not_counted) {
  const Handle x = resident(1), y = resident(1);
  bias(x);
  bias(y);
  const ViewRecord of_x = view(x), of_y = view(y);
  ASSERT_TRUE(in_slot(of_x) && in_slot(of_y));
  residency.count_slot_pins(ref(x), 1);
  EXPECT_EQ(bits(x).readers(), 1u);
  EXPECT_FALSE(bits(y).counted_pins());
  EXPECT_TRUE(bits(y).biased());
  EXPECT_TRUE(residency.end(of_x));
  EXPECT_TRUE(residency.end(of_y));
}

TEST_F(SlotPins, none_is_held_then_the_flags_end) {
  const Handle x = resident(1);
  bias(x);
  EXPECT_TRUE(residency.end(view(x)));
  residency.count_slot_pins(ref(x), 1);
  EXPECT_FALSE(bits(x).pinned());
  EXPECT_FALSE(bits(x).biased());
  EXPECT_FALSE(in_slot(view(x))) << "it is biased by this one";
  EXPECT_TRUE(in_slot(view(x)));
}

// The mover may have to count all pins of a view in one step.
TEST_F(SlotPins, view_of_more_than_4096_extents_counts) {
  constexpr std::uint32_t kMany = 4097;
  Residency large(1, 8192, 1);  // A run of extents is rounded up to a power of two.
  large.bias_each = 1;
  BufferShape shape;
  shape.bytes = kMany * kBytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kBytes));
  shape.extents = kMany;
  shape.label = "buffer";
  shape.window = memory.data();  // Nothing is read there.
  const Handle x = *large.buffers.create(shape);
  for (ExtentRef i = 0; i < kMany; ++i) {
    large.extents.word(kHost, i).set_phase(Phase::incoming);
    large.extents.word(kHost, i).set_phase(Phase::exclusive);
  }
  for (const std::uint32_t extents : {kMany, kMany - 1}) {
    for (const bool again : {false, true}) {
      ViewRecord made;
      ASSERT_TRUE(large.hit({x, 0, extents * kBytes, kRead, {}, 0}, made));
      EXPECT_EQ(in_slot(made), again && extents < kMany) << extents;
      EXPECT_TRUE(large.end(made));
    }
  }
  ViewRecord made;
  ASSERT_TRUE(large.hit({x, 0, 0, kRead, {}, 0}, made));
  EXPECT_FALSE(in_slot(made)) << "although its extents are biased";
  EXPECT_TRUE(large.end(made));
}

TEST_F(SlotPins, release_by_another_thread_ends_the_view_once) {
  const Handle x = resident(1);
  bias(x);
  for (const bool counted : {false, true}) {
    const ViewRecord made = view(x);
    ASSERT_TRUE(in_slot(made));
    if (counted) {
      residency.count_slot_pins(ref(x), 1);
      ASSERT_EQ(bits(x).readers(), 1u);
    }
    std::thread([&] {
      EXPECT_TRUE(residency.end(made));
      EXPECT_FALSE(residency.end(made));
    }).join();
    EXPECT_FALSE(residency.end(made));
    EXPECT_FALSE(bits(x).counted_pins());
  }
}

TEST_F(SlotPins, release_tells_a_mover_that_waits) {
  const Handle x = resident(1);
  bias(x);
  const ViewRecord made = view(x);
  residency.pins_wanted.store(true);
  EXPECT_TRUE(residency.end(made));
  EXPECT_EQ(woken, 1);
}

// The last extent of the range has left, although the first is biased.
TEST_F(SlotPins, slot_that_comes_too_late_is_freed_and_told_of) {
  const Handle x = resident(2);
  bias(x);
  residency.count_slot_pins(ref(x, 1), 1);
  ASSERT_TRUE(word(x, 1).try_outgoing(true));
  residency.pins_wanted.store(true);
  ViewRecord made;
  EXPECT_FALSE(residency.hit({x, 0, 0, kRead, {}, 0}, made));
  EXPECT_GE(woken, 2) << "of the slot, and of the pin that counted";
  EXPECT_EQ(residency.views.count(), 0u);
  EXPECT_FALSE(bits(x).counted_pins());
}

TEST_F(SlotPins, clean_extent_takes_readers_and_no_writers) {
  const Handle x = resident(1);
  word(x).clear_dirty();
  bias(x);
  EXPECT_TRUE(in_slot(view(x)));
  const ViewRecord writer = view(x, kWrite);
  EXPECT_FALSE(in_slot(writer));
  EXPECT_TRUE(bits(x).dirty());
  EXPECT_TRUE(residency.end(writer));
}

TEST_F(SlotPins, extent_that_is_copied_is_not_biased) {
  const Handle x = resident(1);
  ASSERT_TRUE(word(x).start_copy());
  bias(x);
  EXPECT_FALSE(bits(x).biased());
  EXPECT_TRUE(word(x).publish_clean());
  word(x).end_copy();
}

TEST_F(SlotPins, copy_of_a_biased_extent_would_be_in_vain) {
  const Handle x = resident(1);
  bias(x);
  EXPECT_FALSE(word(x).start_copy());
  residency.count_slot_pins(ref(x), 1);
  EXPECT_TRUE(word(x).start_copy());
  word(x).end_copy();
}

TEST_F(SlotPins, view_ends_and_its_pins_are_kept) {
  const Handle x = resident(2);
  bias(x);
  for (const bool counted : {false, true}) {
    const ViewRecord made = view(x, kWrite);
    ASSERT_TRUE(in_slot(made));
    if (counted) {
      residency.count_slot_pins(ref(x), 2);
    }
    PinnedRun run;
    ASSERT_TRUE(residency.end_and_keep(made, run));
    EXPECT_FALSE(residency.end_and_keep(made, run));
    EXPECT_FALSE(residency.end(made));
    residency.count_slot_pins(ref(x), 2);
    EXPECT_EQ(bits(x, 0).writers(), 1u);
    EXPECT_EQ(bits(x, 1).writers(), 1u);
    residency.unpin(run);
    EXPECT_FALSE(bits(x, 0).pinned());
    EXPECT_FALSE(bits(x, 1).pinned());
    bias(x);
  }
}

TEST_F(SlotPins, buffer_is_freed_then_it_is_a_spare_unless_a_slot_holds_it) {
  residency.spares.set_limit(64 * kBytes);
  const Handle x = resident(2), y = resident(2);
  bias(x);
  bias(y);
  const ViewRecord held = view(y);
  ASSERT_TRUE(in_slot(held));
  EXPECT_EQ(residency.make_spare(x), Code::ok);
  EXPECT_EQ(residency.make_spare(y), Code::busy);
  EXPECT_EQ(bits(y, 1).readers(), 1u);
  EXPECT_TRUE(residency.end(held));
  EXPECT_FALSE(bits(y, 1).pinned());
}

// ---- The mover

struct MoverSlotPins : ::testing::Test {
  MoverSlotPins() : x(m.buffer()) {
    m.residency.bias_each = 1;
    m.write(x, 0x11);
    EXPECT_TRUE(m.residency.end(view()));
  }
  ViewRecord view() {
    ViewRecord made;
    EXPECT_TRUE(m.residency.hit(SteppedMover::access(x, kWrite), made));
    return made;
  }
  ViewRecord by_slot() {
    const ViewRecord made = view();
    EXPECT_TRUE(PinnedRun{made.token[1]}.in_slot());
    return made;
  }
  void release(const ViewRecord& made) {
    EXPECT_TRUE(m.residency.end(made));
    m.end_all();
  }

  SteppedMover m;
  const Handle x;
};

TEST_F(MoverSlotPins, buffer_is_freed_then_its_memory_stays_until_the_slot_is_freed) {
  const ViewRecord held = by_slot();
  const Call& freed = m.free(x);
  m.end_all();
  EXPECT_FALSE(freed.done());
  EXPECT_EQ(static_cast<const unsigned char*>(held.data)[0], 0x11);
  release(held);
  EXPECT_EQ(freed.code(), Code::ok);
  EXPECT_EQ(m.host.usage().in_use, 0u);
}

TEST_F(MoverSlotPins, eviction_of_what_a_slot_holds_is_refused_and_later_done) {
  const ViewRecord held = by_slot();
  const Call& refused = m.ask(RequestKind::evict, {SteppedMover::access(x, kRead)});
  m.end_all();
  EXPECT_EQ(refused.code(), Code::busy);
  EXPECT_SAYS(refused.request.status, "pinned by a view");
  EXPECT_TRUE(m.resident(x));
  release(held);
  const Call& done = m.ask(RequestKind::evict, {SteppedMover::access(x, kRead)});
  m.end_all();
  EXPECT_EQ(done.code(), Code::ok);
  EXPECT_FALSE(m.resident(x));
}

TEST_F(MoverSlotPins, write_by_a_slot_after_a_clean_makes_the_extent_dirty_again) {
  ASSERT_EQ(m.ask(RequestKind::clean, {SteppedMover::access(x, kRead)}).answers, 0u);
  m.end_all();
  EXPECT_FALSE(m.bits(x).dirty());
  EXPECT_FALSE(m.bits(x).slot_pins());
  const ViewRecord writer = view();
  EXPECT_FALSE(PinnedRun{writer.token[1]}.in_slot()) << "the bias has ended";
  EXPECT_TRUE(m.bits(x).dirty());
  release(writer);
}

TEST_F(MoverSlotPins, memory_is_short_then_the_biased_extent_leaves_and_the_held_one_stays) {
  const ViewRecord held = by_slot();
  const Handle y = m.buffer();
  m.write(y, 0x22);
  ViewRecord of_y;
  ASSERT_TRUE(m.residency.hit(SteppedMover::access(y, kRead), of_y));
  ASSERT_TRUE(m.residency.end(of_y));
  ASSERT_TRUE(m.bits(y).biased());
  const Call& smaller = m.set_budget(SteppedMover::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok);
  EXPECT_TRUE(m.resident(x));
  EXPECT_FALSE(m.resident(y));
  release(held);
}

TEST_F(MoverSlotPins, questions_name_pins_only_while_slots_hold_them) {
  const auto pinned = [&] {
    Call& call = m.prepare(RequestKind::info);
    BufferInfo info{};
    call.request.index = Buffers::index_of(x);
    call.request.info = &info;
    m.post(call);
    m.settle();
    return info.pinned;
  };
  const ViewRecord held = by_slot();
  EXPECT_EQ(pinned(), SteppedMover::kExtent);
  release(held);
  EXPECT_EQ(pinned(), 0u);
}

}  // namespace
}  // namespace tiermem

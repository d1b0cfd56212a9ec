// The accounting of a memory: used = in_use + cached, budgets, and trims.
#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

TEST_P(MemoryContract, new_memory_has_its_budget_and_nothing_in_use) {
  EXPECT_EQ(usage().budget, facts().budget);
  EXPECT_EQ(usage().used(), 0U);
  EXPECT_EQ(usage().leaving, 0U);
  EXPECT_FALSE(memory().lost());
  EXPECT_TRUE(memory().loss().ok());
  EXPECT_EQ(memory().place(), memory().place());
}

TEST_P(MemoryContract, fresh_frame_is_charged_and_leaves_no_charge_when_returned) {
  for (const Class& each : classes()) {
    const FrameId frame = acquire(each);
    ASSERT_TRUE(frame.valid()) << each.bytes;
    EXPECT_TRUE(memory().needs_populate(frame)) << each.bytes;
    EXPECT_EQ(usage().in_use, charge(each));
    EXPECT_EQ(usage().cached, 0U);
    give_back(frame);
    EXPECT_EQ(usage().used(), 0U) << each.bytes;
  }
}

TEST_P(MemoryContract, budget_is_full_then_no_frame_is_acquired) {
  for (const Class& each : classes()) {
    std::uint64_t frames = 0;
    while (acquire(each).valid()) {
      ++frames;
      ASSERT_LE(usage().used(), usage().budget);
      ASSERT_GE(usage().in_use, frames * each.bytes);
      ASSERT_LE(frames * each.bytes, usage().budget) << "more frames than the budget has room for";
    }
    EXPECT_EQ(frames, usage().budget / each.bytes);
    EXPECT_EQ(usage().in_use, usage().budget);
    give_back_all();
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, populated_frame_returns_then_it_is_cached_and_serves_the_next_request) {
  for (const Class& each : classes()) {
    const FrameId frame = populated(each);
    const std::uint64_t used = usage().used();
    EXPECT_EQ(usage().cached, 0U);
    give_back(frame);
    EXPECT_EQ(usage().in_use, 0U);
    EXPECT_EQ(usage().cached, used) << "its pages are kept";
    const FrameId again = acquire(each);
    ASSERT_TRUE(again.valid());
    EXPECT_EQ(usage().used(), used) << "a cached frame is preferred";
    EXPECT_EQ(usage().cached, 0U);
    EXPECT_FALSE(memory().needs_populate(again)) << "it has its pages, and the domain is the same";
    give_back(again);
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, cached_frames_fill_the_budget_then_another_class_waits_for_a_trim) {
  const Class large{Pool::locked, largest()};
  const Class small{Pool::locked, facts().extents.front()};
  for (std::uint64_t i = 0; i < facts().budget / large.bytes; ++i) {
    populated(large);
  }
  give_back_all();
  EXPECT_EQ(usage().cached, facts().budget);
  if (charge(small) != charge(large)) {
    EXPECT_FALSE(acquire(small).valid()) << "cached frames count";
  }
  EXPECT_EQ(trim(memory(), 1), large.bytes);
  EXPECT_TRUE(acquire(small).valid());
  EXPECT_LE(usage().used(), usage().budget);
}

TEST_P(MemoryContract, trim_frees_what_it_returns_and_the_books_change_at_its_end) {
  for (const Class& each : classes()) {
    const std::uint64_t unit = charge(each);
    while (usage().in_use < 4 * unit) {
      ASSERT_TRUE(populated(each).valid());
    }
    give_back_all();
    ASSERT_EQ(usage().cached, 4 * unit);
    EXPECT_EQ(memory().begin_trim(unit + 1), 2 * unit) << "until the bytes are free";
    EXPECT_EQ(usage().used(), 4 * unit) << "the pages are still there";
    EXPECT_TRUE(subject().consistent());
    memory().run_trim();
    EXPECT_EQ(usage().used(), 4 * unit);
    memory().finish_trim();
    EXPECT_EQ(usage().used(), 2 * unit);
    EXPECT_EQ(usage().cached, 2 * unit);
    EXPECT_TRUE(subject().consistent());
    EXPECT_EQ(memory().begin_trim(~std::uint64_t{0}), 2 * unit) << "or none is left";
    memory().run_trim();
    memory().finish_trim();
    EXPECT_EQ(usage().used(), 0U);
    EXPECT_EQ(memory().begin_trim(1), 0U) << "nothing is cached";
  }
}

TEST_P(MemoryContract, trim_finds_frames_in_use_then_they_and_their_bytes_stay) {
  const Class of{Pool::locked, largest()};
  const FrameId kept = filled(of, 5);
  give_back(populated(of));
  EXPECT_EQ(trim(memory()), charge(of));
  EXPECT_EQ(usage().in_use, charge(of));
  EXPECT_TRUE(holds(kept, of.bytes, 5));
}

TEST_P(MemoryContract, trimmed_frame_is_fresh_and_shows_no_earlier_bytes) {
  for (const Class& each : classes()) {
    const FrameId frame = filled(each, 9, 1);
    give_back(frame);
    (void)trim(memory());
    const FrameId again = acquire(each, 2);
    ASSERT_TRUE(again.valid());
    EXPECT_TRUE(memory().needs_populate(again));
    ASSERT_TRUE(memory().populate(again, false, nullptr).ok());
    EXPECT_TRUE(zeros(again, each.bytes)) << each.bytes;
    give_back(again);
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, budget_is_lowered_below_used_then_nothing_is_acquired_until_it_fits) {
  const Class of{Pool::locked, largest()};
  const std::uint64_t unit = of.bytes;
  std::vector<FrameId> frames;
  for (std::uint64_t i = 0; i < facts().budget / unit; ++i) {
    frames.push_back(populated(of));
  }
  const std::uint64_t most = frames.size() / 2;
  memory().set_budget(most * unit);
  EXPECT_EQ(usage().budget, most * unit);
  EXPECT_EQ(usage().in_use, frames.size() * unit) << "a budget takes no frame away";
  while (frames.size() > most) {
    EXPECT_FALSE(acquire(of).valid()) << frames.size() << " frames are in use";
    give_back(frames.back());
    frames.pop_back();
    ASSERT_LE(usage().leaving, usage().in_use);
    (void)trim(memory(), 1);
    EXPECT_EQ(usage().used(), frames.size() * unit) << "the frame above the budget is free";
  }
  EXPECT_FALSE(acquire(of).valid());
  give_back(frames.back());
  EXPECT_TRUE(acquire(of).valid());
  EXPECT_LE(usage().used(), usage().budget);
  EXPECT_TRUE(subject().consistent());
}

TEST_P(MemoryContract, budget_is_lowered_below_the_cache_then_cached_frames_do_not_exceed_it) {
  for (const Class& each : classes()) {
    if (each.bytes < facts().chunk_bytes && each.pool == Pool::locked) {
      continue;  // Frames that share a chunk.
    }
    for (int i = 0; i < 4; ++i) {
      populated(each);
    }
    give_back_all();
    ASSERT_EQ(usage().cached, 4 * charge(each));
    memory().set_budget(2 * charge(each));
    EXPECT_TRUE(acquire(each).valid());
    EXPECT_TRUE(acquire(each).valid());
    EXPECT_FALSE(acquire(each).valid()) << "in use would exceed the budget";
    EXPECT_EQ(usage().in_use, 2 * charge(each));
    memory().set_budget(facts().budget);
    EXPECT_TRUE(acquire(each).valid()) << "a higher budget";
    give_back_all();
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, records_are_charged_as_far_as_there_is_room) {
  if (!facts().charges_records) {
    EXPECT_TRUE(memory().charge_records(3 * kSmallestExtent)) << "the base class takes all";
    EXPECT_EQ(usage().used(), 0U);
    return;
  }
  EXPECT_TRUE(memory().charge_records(3 * kSmallestExtent));
  EXPECT_EQ(usage().in_use, 3 * kSmallestExtent);
  EXPECT_TRUE(memory().charge_records(5 * kSmallestExtent)) << "a charge replaces the last one";
  EXPECT_EQ(usage().in_use, 5 * kSmallestExtent);
  EXPECT_FALSE(memory().charge_records(facts().budget + 1));
  EXPECT_EQ(usage().in_use, 5 * kSmallestExtent) << "a refusal changes nothing";
  memory().set_budget(4 * kSmallestExtent);
  EXPECT_TRUE(memory().charge_records(4 * kSmallestExtent)) << "less always fits";
  EXPECT_FALSE(acquire({Pool::locked, kSmallestExtent}).valid());
  EXPECT_FALSE(memory().charge_records(5 * kSmallestExtent));
  EXPECT_TRUE(memory().charge_records(0));
  EXPECT_EQ(usage().in_use, 0U);
  EXPECT_TRUE(subject().consistent());
}

TEST_P(MemoryContract, memory_is_lost_then_accounting_still_works_and_copies_end_with_an_error) {
  const Class of{Pool::locked, largest()};
  const FrameId one = populated(of), other = populated(of);
  put(one, of.bytes, 3);
  if (!subject().lose()) {  // Memory of the host.
    EXPECT_FALSE(memory().lost());
    EXPECT_TRUE(holds(one, of.bytes, 3));
    return;
  }
  if (opaque()) {
    // A device finds out by its next call.
    Block bytes = pattern(of.bytes, 4);
    EXPECT_FALSE(copy(subject(), true, one, bytes.data(), of.bytes).ok());
    EXPECT_FALSE(copy(subject(), false, other, bytes.data(), of.bytes).ok());
  }
  EXPECT_TRUE(memory().lost());
  EXPECT_FALSE(memory().loss().ok());
  const std::uint64_t in_use = usage().in_use;
  give_back(one);
  EXPECT_EQ(usage().in_use, in_use - of.bytes);
  give_back(other);
  (void)trim(memory());
  EXPECT_EQ(usage().used(), 0U);
}

}  // namespace
}  // namespace tiermem::contract

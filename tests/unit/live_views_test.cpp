// How a thread records its views: in slots of its own, one after another.
#include <gtest/gtest.h>

#include <vector>

#include "residency/views.hpp"

namespace tiermem {
namespace {

std::uint64_t slot_of(const ViewRecord& view) {
  return view.token[0] & (LiveViews::kMaxViews - 1);
}

// The next slot is found without a search, whether the previous one is in use or not.
TEST(LiveViews, a_thread_takes_the_slots_of_a_chunk_in_turn) {
  LiveViews views(1);  // A context's tag.
  std::vector<ViewRecord> held(LiveViews::kChunk);
  for (std::uint32_t i = 0; i < LiveViews::kChunk; ++i) {
    ASSERT_TRUE(views.add(held[i], 1, PinnedRun::of(i, 1, 0, false)));
    EXPECT_EQ(slot_of(held[i]), slot_of(held[0]) + i);
  }
  EXPECT_EQ(views.count(), LiveViews::kChunk);
  for (const ViewRecord& view : held) {
    PinnedRun run{};
    EXPECT_TRUE(views.end(view, run));
    EXPECT_FALSE(views.end(view, run)) << "once";
  }
  EXPECT_EQ(views.count(), 0u);
  // The slots then begin again, also if each is returned at once.
  for (std::uint32_t i = 0; i < 2 * LiveViews::kChunk; ++i) {
    ViewRecord view;
    PinnedRun run{};
    ASSERT_TRUE(views.add(view, 1, PinnedRun::of(i, 1, 0, false)));
    EXPECT_EQ(slot_of(view), slot_of(held[0]) + i % LiveViews::kChunk);
    EXPECT_TRUE(views.end(view, run));
    EXPECT_EQ(run.first(), i);
  }
}

// As in a child of fork. A view of the same slot that begins later is another one.
TEST(LiveViews, a_view_that_was_left_to_the_parent_ends_once_and_unpins_nothing) {
  LiveViews views(1);
  ViewRecord kept, left;
  ASSERT_TRUE(views.add(kept, 1, PinnedRun::of(5, 1, 0, false)));
  ASSERT_TRUE(views.add(left, 2, PinnedRun::of(6, 3, 0, true)));
  views.leave_to_parent([](Handle buffer) { return buffer == 2; });
  EXPECT_EQ(views.count(), 1u);
  std::vector<ViewRecord> later(LiveViews::kChunk);
  for (ViewRecord& view : later) {
    ASSERT_TRUE(views.add(view, 3, PinnedRun::of(7, 1, 0, false)));
  }
  PinnedRun run{};
  ASSERT_TRUE(views.end(left, run));
  EXPECT_EQ(run.count(), 0u);
  EXPECT_FALSE(views.end(left, run)) << "once";
  ASSERT_TRUE(views.end(kept, run));
  EXPECT_EQ(run.first(), 5u);
  for (const ViewRecord& view : later) {
    ASSERT_TRUE(views.end(view, run));
    EXPECT_EQ(run.count(), 1u);
  }
}

}  // namespace
}  // namespace tiermem

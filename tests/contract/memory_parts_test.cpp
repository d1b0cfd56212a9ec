// Extents in parts: frames that are charged by the page, and are in a mapped window only.
#include <array>
#include <bit>

#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kPage = kSmallestExtent;

class Parts {
 public:
  Parts(MemorySubject& subject, std::byte* at, std::uint64_t bytes)
      : subject_(subject), at_(at), pages_(static_cast<unsigned>(bytes / kPage)) {}
  unsigned pages() const { return pages_; }
  PageMask all() const { return static_cast<PageMask>((std::uint64_t{1} << pages_) - 1); }
  /// Whether exactly these pages are present, with the bytes of this seed.
  bool are(PageMask mask, std::uint64_t seed) {
    const Block expected = pattern(pages_ * kPage, seed);
    Block seen(kPage);
    for (unsigned i = 0; i < pages_; ++i) {
      if (subject_.absent(at_ + i * kPage) == ((mask >> i & 1) != 0)) {
        return false;
      }
      if ((mask >> i & 1) != 0) {
        subject_.read(seen.data(), at_ + i * kPage, kPage);
        if (std::memcmp(seen.data(), expected.data() + i * kPage, kPage) != 0) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  MemorySubject& subject_;
  std::byte* at_;
  unsigned pages_;
};

TEST_P(MemoryContract, parts_are_not_offered_then_they_are_refused) {
  for (const std::uint64_t bytes : part_extents()) {
    EXPECT_TRUE(space().takes_parts(bytes, false)) << bytes;
    EXPECT_LE(bytes, kMostParts * kPage);
  }
  for (const std::uint64_t bytes : missing(facts().part_extents)) {
    if (!memory().takes({space().window_pool(bytes), bytes, 0})) {
      continue;
    }
    const FrameId frame = window_frame(bytes);
    const std::uint64_t used = usage().used();
    EXPECT_FALSE(memory().charge_parts(frame, 1)) << "no frame of parts";
    EXPECT_FALSE(space().may_be_unchanged(frame));
    EXPECT_EQ(usage().used(), used);
    if (facts().part_extents.empty()) {
      std::array<AddressSpace::Unchanged, 1> frames{{{frame, nullptr, 0, false}}};
      space().drop_unchanged(std::span(frames).first(opaque() ? 1 : 0));
      EXPECT_FALSE(frames[0].dropped);
    }
    give_back(frame);
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, parts_are_charged_by_the_page_and_appear_by_the_page) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(2 * bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, 1);
    ASSERT_TRUE(frame.valid());
    EXPECT_EQ(usage().in_use, kPage);
    EXPECT_TRUE(parts.are(0, 1));
    const Block data = pattern(bytes, 1);
    const PageMask last = PageMask{1} << (parts.pages() - 1);
    ASSERT_TRUE(space().insert(frame, at, data.data(), last, false).ok());
    EXPECT_TRUE(parts.are(last, 1)) << bytes;
    if (parts.pages() > 2) {
      ASSERT_TRUE(memory().charge_parts(frame, 1));
      EXPECT_EQ(usage().in_use, 2 * kPage);
      ASSERT_TRUE(space().insert(frame, at, data.data(), 0b1, false).ok());
      EXPECT_TRUE(parts.are(last | 0b1, 1)) << bytes;
    }
    ASSERT_TRUE(space().unmap(frame, at).ok());
    EXPECT_TRUE(parts.are(0, 1)) << "dropped";
    memory().return_frame(frame);
    EXPECT_EQ(usage().used(), 0U) << "dropped pages are not charged";
    EXPECT_TRUE(subject().consistent());
  }
}

TEST_P(MemoryContract, parts_leave_and_come_back_with_every_byte) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const PageMask mask = parts.all() & 0xB6ADB5AE;  // Several runs, without the first page.
    const auto pages = static_cast<unsigned>(std::popcount(mask));
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, pages);
    ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), mask, false).ok());
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(parts.are(mask, 1)) << bytes << " bytes, round " << round;
      ASSERT_TRUE(space().withdraw(frame, at).ok());
      ASSERT_TRUE(parts.are(0, 1));
      EXPECT_EQ(usage().in_use, pages * kPage);
      ASSERT_TRUE(space().restore(frame, at).ok());
    }
    ASSERT_TRUE(parts.are(mask, 1));
    ASSERT_TRUE(space().unmap(frame, at).ok());
    memory().return_frame(frame);
    EXPECT_EQ(usage().used(), 0U);
  }
}

TEST_P(MemoryContract, withdrawn_parts_return_then_they_are_leaving_until_the_next_trim) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    for (int i = 0; i < 2; ++i) {
      const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, 1);
      ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), 0b1, false).ok());
      ASSERT_TRUE(space().withdraw(frame, at).ok());
      memory().return_frame(frame);
    }
    EXPECT_EQ(usage().in_use, 2 * kPage) << "its pages are still there";
    EXPECT_EQ(usage().leaving, 2 * kPage);
    EXPECT_EQ(memory().begin_trim(1), 2 * kPage) << "the next trim frees all that is leaving";
    EXPECT_EQ(usage().used(), 2 * kPage);
    memory().run_trim();
    memory().finish_trim();
    EXPECT_EQ(usage().used(), 0U);
    EXPECT_EQ(usage().leaving, 0U);
    EXPECT_TRUE(subject().consistent());
  }
}

TEST_P(MemoryContract, frame_has_all_its_parts_then_it_is_a_whole_frame) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const FrameId frame =
        memory().acquire_parts({space().window_pool(bytes), bytes, 0}, parts.pages());
    ASSERT_TRUE(frame.valid());
    EXPECT_FALSE(memory().charge_parts(frame, 1)) << "it has no more pages";
    const Block data = pattern(bytes, 3);
    const PageMask lower = parts.all() >> parts.pages() / 2;
    ASSERT_TRUE(space().insert(frame, at, data.data(), parts.all() & ~lower, false).ok());
    ASSERT_TRUE(space().insert(frame, at, data.data(), lower, false).ok());
    EXPECT_TRUE(parts.are(parts.all(), 3)) << bytes;
    EXPECT_FALSE(memory().charge_parts(frame, 1)) << "it is a whole frame now";
    EXPECT_EQ(usage().in_use, bytes);
    ASSERT_TRUE(space().withdraw(frame, at).ok());
    EXPECT_TRUE(parts.are(0, 3));
    EXPECT_TRUE(holds(frame, bytes, 3)) << bytes;
    memory().return_frame(frame);
    EXPECT_EQ(usage().in_use, 0U);
    EXPECT_EQ(usage().cached, bytes) << "its pages serve the next request";
    const FrameId next = populated(window_class(bytes), 1);
    EXPECT_EQ(usage().used(), bytes);
    EXPECT_TRUE(zeros(next, bytes)) << "of another domain";
    give_back(next);
    (void)trim(memory());
    EXPECT_TRUE(subject().consistent());
  }
}

TEST_P(MemoryContract, parts_are_emptied_then_their_charge_stays_and_they_may_come_again) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const PageMask most = parts.all() & ~PageMask{1};  // Not all.
    const auto pages = static_cast<unsigned>(std::popcount(most));
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, pages);
    ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), most, false).ok());
    const PageMask gone = PageMask{1} << (parts.pages() - 1);
    if (subject().refuse("empty", at)) {
      EXPECT_FALSE(space().empty(frame, at, gone).ok());
      subject().forgive();
      EXPECT_TRUE(present(at + (parts.pages() - 1) * kPage, kPage)) << "it counts as present";
    }
    ASSERT_TRUE(space().empty(frame, at, gone).ok());
    EXPECT_TRUE(parts.are(most & ~gone, 1)) << bytes;
    EXPECT_EQ(usage().in_use, pages * kPage);
    ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), gone, false).ok());
    EXPECT_TRUE(parts.are(most, 1));
    EXPECT_EQ(usage().in_use, pages * kPage);
    ASSERT_TRUE(space().unmap(frame, at).ok());
    memory().return_frame(frame);
    EXPECT_EQ(usage().used(), 0U);
  }
}

TEST_P(MemoryContract, parts_never_exceed_the_budget) {
  for (const std::uint64_t bytes : part_extents()) {
    const unsigned pages = std::min(3U, static_cast<unsigned>(bytes / kPage));
    memory().set_budget(pages * kPage);
    if (pages < bytes / kPage) {
      EXPECT_FALSE(
          memory().acquire_parts({space().window_pool(bytes), bytes, 0}, pages + 1).valid());
    }
    EXPECT_EQ(usage().used(), 0U);
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, pages - 1);
    ASSERT_TRUE(frame.valid());
    EXPECT_FALSE(memory().charge_parts(frame, 2));
    EXPECT_EQ(usage().in_use, (pages - 1) * kPage) << "a refusal changes nothing";
    EXPECT_TRUE(memory().charge_parts(frame, 1));
    EXPECT_EQ(usage().in_use, pages * kPage);
    EXPECT_FALSE(memory().acquire_parts({space().window_pool(bytes), bytes, 0}, 1).valid());
    memory().discharge_parts(frame, 1);
    EXPECT_EQ(usage().in_use, (pages - 1) * kPage);
    memory().return_frame(frame);
    EXPECT_EQ(usage().used(), 0U);
    memory().set_budget(facts().budget);
    EXPECT_TRUE(subject().consistent());
  }
}

/// Inserts watched pages. Returns an invalid id if there is no room.
FrameId insert_watched(Memory& memory, std::byte* at, std::uint64_t bytes, PageMask pages,
                       std::uint64_t seed, bool watched = true) {
  const FrameId frame = memory.acquire_parts({memory.space().window_pool(bytes), bytes, 0},
                                             static_cast<unsigned>(std::popcount(pages)));
  if (frame.valid()) {
    EXPECT_TRUE(memory.space().insert(frame, at, pattern(bytes, seed).data(), pages, watched).ok());
  }
  return frame;
}

TEST_P(MemoryContract, watched_frames_are_dropped_together_unless_they_were_written) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const first = window(4 * bytes, bytes, true);
    Parts all(subject(), first, bytes);
    // Whole, in parts, and not watched.
    const std::array<PageMask, 3> masks = {all.all(), 0b10, 0b1};
    std::array<AddressSpace::Unchanged, 3> frames{};
    for (unsigned i = 0; i < 3; ++i) {
      frames[i].at = first + i * bytes;
      frames[i].frame = insert_watched(memory(), frames[i].at, bytes, masks[i], i + 1, i != 2);
      ASSERT_TRUE(frames[i].frame.valid());
      EXPECT_EQ(space().may_be_unchanged(frames[i].frame), facts().watches && i != 2);
    }
    const std::uint64_t in_use = usage().in_use;
    space().drop_unchanged(frames);
    EXPECT_EQ(usage().in_use, in_use) << "they stay charged until they are returned";
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(frames[i].dropped, facts().watches && i != 2);
      Parts parts(subject(), frames[i].at, bytes);
      EXPECT_TRUE(parts.are(frames[i].dropped ? 0 : masks[i], i + 1)) << bytes << " frame " << i;
      EXPECT_FALSE(space().may_be_unchanged(frames[i].frame)) << "the others are no longer watched";
      if (!frames[i].dropped) {
        ASSERT_TRUE(space().unmap(frames[i].frame, frames[i].at).ok());
      }
      memory().return_frame(frames[i].frame);
    }
    EXPECT_EQ(usage().in_use, 0U);
    (void)trim(memory());
    EXPECT_EQ(usage().used(), 0U);
    EXPECT_TRUE(subject().consistent());
  }
}

TEST_P(MemoryContract, some_pages_arrive_unwatched_then_the_frame_is_not_unchanged) {
  for (const std::uint64_t bytes : part_extents()) {
    for (const bool first_watched : {true, false}) {
      std::byte* const at = window(bytes, bytes, true);
      Parts parts(subject(), at, bytes);
      const FrameId frame = insert_watched(memory(), at, bytes, 0b1, 4, first_watched);
      ASSERT_TRUE(memory().charge_parts(frame, 1));
      ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 4).data(), 0b10, !first_watched).ok());
      EXPECT_FALSE(space().may_be_unchanged(frame));
      std::array<AddressSpace::Unchanged, 1> frames{{{frame, at, 0, false}}};
      space().drop_unchanged(frames);
      EXPECT_FALSE(frames[0].dropped);
      EXPECT_TRUE(parts.are(0b11, 4));
      ASSERT_TRUE(space().unmap(frame, at).ok());
      memory().return_frame(frame);
      (void)trim(memory());
    }
  }
}

TEST_P(MemoryContract, watched_frame_leaves_and_comes_back_then_it_is_not_watched) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const FrameId frame = insert_watched(memory(), at, bytes, 0b10, 4);
    ASSERT_TRUE(space().withdraw(frame, at).ok());
    ASSERT_TRUE(space().restore(frame, at).ok());
    EXPECT_FALSE(space().may_be_unchanged(frame));
    EXPECT_TRUE(parts.are(0b10, 4));
    store(at + kPage, kPage, 5);
    std::array<AddressSpace::Unchanged, 1> frames{{{frame, at, 0, false}}};
    space().drop_unchanged(frames);
    EXPECT_FALSE(frames[0].dropped);
    EXPECT_TRUE(sees(at + kPage, kPage, 5));
    ASSERT_TRUE(space().unmap(frame, at).ok());
    memory().return_frame(frame);
  }
}

// Some pages leave for a frame of their own. It is given back like any other.
TEST_P(MemoryContract, some_pages_leave_then_the_others_stay_in_the_window) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const PageMask mask = parts.all() & ~PageMask{0b10};
    const PageMask some = mask & 0x5555'5554, others = mask & ~some;
    const auto pages = static_cast<unsigned>(std::popcount(mask));
    const auto leaving = static_cast<unsigned>(std::popcount(some));
    if (some == 0) {
      continue;  // Extents of two pages.
    }
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, pages);
    ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), mask, false).ok());
    for (const bool comes_back : {true, false}) {
      const FrameId split = memory().split_parts(frame, leaving);
      ASSERT_TRUE(split.valid());
      EXPECT_EQ(usage().in_use, pages * kPage) << "in all nothing is charged";
      ASSERT_TRUE(space().withdraw_to(split, frame, at, some).ok());
      EXPECT_TRUE(parts.are(others, 1)) << bytes;
      const Block expected = pattern(bytes, 1);
      for (PageMask left = some; left != 0; left &= left - 1) {
        const auto page = static_cast<unsigned>(std::countr_zero(left));
        EXPECT_EQ(std::memcmp(space().bytes_at(split, nullptr) + page * kPage,
                              expected.data() + page * kPage, kPage),
                  0)
            << "page " << page << " of " << bytes;
      }
      if (comes_back) {
        ASSERT_TRUE(space().restore_from(split, frame, at).ok());
        EXPECT_TRUE(parts.are(mask, 1)) << bytes;
        memory().join_parts(split, frame);
        EXPECT_EQ(usage().in_use, pages * kPage);
        EXPECT_EQ(usage().leaving, 0U);
      } else {
        memory().return_frame(split);
        EXPECT_EQ(usage().leaving, leaving * kPage);
      }
    }
    (void)trim(memory());
    EXPECT_EQ(usage().used(), (pages - leaving) * kPage);
    EXPECT_TRUE(parts.are(others, 1));
    ASSERT_TRUE(memory().charge_parts(frame, leaving)) << "they may come again";
    ASSERT_TRUE(space().insert(frame, at, pattern(bytes, 1).data(), some, false).ok());
    EXPECT_TRUE(parts.are(mask, 1)) << bytes;
    ASSERT_TRUE(space().unmap(frame, at).ok());
    memory().return_frame(frame);
    (void)trim(memory());
    EXPECT_EQ(usage().used(), 0U);
    EXPECT_TRUE(subject().consistent());
  }
}

TEST_P(MemoryContract, some_watched_pages_are_dropped_then_the_others_stay_watched) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const PageMask mask = parts.all() & ~PageMask{0b10};
    const PageMask some = mask & 0x5555'5554;
    if (!facts().watches || some == 0) {
      continue;
    }
    const FrameId frame = insert_watched(memory(), at, bytes, mask, 7);
    std::array<AddressSpace::Unchanged, 1> frames{{{frame, at, some, false}}};
    space().drop_unchanged(frames);
    EXPECT_TRUE(frames[0].dropped);
    EXPECT_TRUE(parts.are(mask & ~some, 7)) << bytes;
    EXPECT_TRUE(space().may_be_unchanged(frame));
    memory().discharge_parts(frame, static_cast<unsigned>(std::popcount(some)));
    EXPECT_EQ(usage().in_use, static_cast<unsigned>(std::popcount(mask & ~some)) * kPage);
    frames[0] = {frame, at, 0, false};
    space().drop_unchanged(frames);
    EXPECT_TRUE(frames[0].dropped);
    EXPECT_TRUE(parts.are(0, 7));
    memory().return_frame(frame);
    (void)trim(memory());
    EXPECT_EQ(usage().used(), 0U);
  }
}

// The copy that a frame came from can go while the frame is in its window.
TEST_P(MemoryContract, watch_is_ended_then_the_frame_is_not_dropped) {
  for (const std::uint64_t bytes : part_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    Parts parts(subject(), at, bytes);
    const FrameId frame = insert_watched(memory(), at, bytes, parts.all(), 3);
    space().end_watch(frame);
    EXPECT_FALSE(space().may_be_unchanged(frame));
    std::array<AddressSpace::Unchanged, 1> frames{{{frame, at, 0, false}}};
    space().drop_unchanged(frames);
    EXPECT_FALSE(frames[0].dropped);
    EXPECT_TRUE(parts.are(parts.all(), 3));
    ASSERT_TRUE(space().unmap(frame, at).ok());
    memory().return_frame(frame);
    (void)trim(memory());
  }
}

}  // namespace
}  // namespace tiermem::contract

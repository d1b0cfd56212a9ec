// Frames of a memory outside of windows: fresh and populated, domains, pools, page locks.
#include <map>

#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

TEST_P(MemoryContract, populated_frames_have_distinct_memory_that_keeps_its_bytes) {
  struct Kept {
    FrameId frame;
    std::uint64_t bytes;
    std::uint64_t seed;
  };
  std::vector<Kept> kept;
  for (int round = 0; round < 3; ++round) {
    for (const Class& each : classes()) {
      if (usage().used() + 2 * charge(each) > facts().budget) {
        continue;
      }
      kept.push_back({populated(each), each.bytes, kept.size() + 1});
      put(kept.back().frame, each.bytes, kept.back().seed);
    }
  }
  for (const Kept& each : kept) {
    EXPECT_TRUE(holds(each.frame, each.bytes, each.seed)) << each.bytes;
    EXPECT_NE(space().bytes_at(each.frame, nullptr), nullptr);
    EXPECT_EQ(
        reinterpret_cast<std::uint64_t>(space().bytes_at(each.frame, nullptr)) % kSmallestExtent,
        0U);
    EXPECT_FALSE(memory().needs_populate(each.frame));
  }
}

TEST_P(MemoryContract, every_frame_names_its_memory) {
  ASSERT_LT(memory().number(), space().memories().size());
  EXPECT_EQ(space().memories()[memory().number()], &memory());
  for (const std::uint64_t bytes : facts().extents) {
    for (const Class& each : {Class{Pool::locked, bytes}, window_class(bytes)}) {
      if (!memory().takes({each.pool, each.bytes, 0})) {
        EXPECT_FALSE(acquire(each).valid()) << bytes;
        continue;
      }
      const FrameId frame = acquire(each);
      ASSERT_TRUE(frame.valid()) << bytes;
      EXPECT_EQ(frame.memory(), memory().number()) << bytes;
      give_back(frame);
      const FrameRequest of_another{
          .pool = each.pool, .bytes = each.bytes, .only = memory().number() == 0 ? 1U : 0U};
      EXPECT_FALSE(memory().takes(of_another)) << bytes;
      EXPECT_FALSE(memory().acquire_frame(of_another).valid()) << bytes;
    }
  }
  for (const std::uint64_t bytes : part_extents()) {
    const FrameId frame = memory().acquire_parts({space().window_pool(bytes), bytes, 0}, 1);
    ASSERT_TRUE(frame.valid()) << bytes;
    EXPECT_EQ(frame.memory(), memory().number()) << bytes;
    memory().return_frame(frame);
  }
}

TEST_P(MemoryContract, locked_frame_never_changes_its_address) {
  const FrameId frame = populated({Pool::locked, largest()});
  std::byte* const at = space().bytes_at(frame, nullptr);
  put(frame, largest(), 2);
  give_back(populated({Pool::locked, largest()}));
  (void)trim(memory());
  ASSERT_TRUE(memory().populate(frame, false, nullptr).ok());
  EXPECT_EQ(space().bytes_at(frame, nullptr), at);
  EXPECT_TRUE(holds(frame, largest(), 2)) << "populate keeps the bytes of the frame's own domain";
}

TEST_P(MemoryContract, fresh_frame_is_populated_then_it_reads_as_zeros) {
  for (const bool clear : {false, true}) {
    for (const Class& each : classes()) {
      const FrameId frame = acquire(each);
      ASSERT_TRUE(memory().needs_populate(frame));
      ASSERT_TRUE(memory().populate(frame, clear, nullptr).ok());
      EXPECT_FALSE(memory().needs_populate(frame));
      EXPECT_TRUE(zeros(frame, each.bytes)) << each.bytes;
      give_back(frame);
      (void)trim(memory());
    }
  }
}

TEST_P(MemoryContract, frame_is_populated_with_clear_then_it_reads_as_zeros) {
  for (const Class& each : classes()) {
    const FrameId frame = filled(each, 7);
    ASSERT_TRUE(memory().populate(frame, true, nullptr).ok());
    EXPECT_TRUE(zeros(frame, each.bytes)) << each.bytes;
    give_back(frame);
    (void)trim(memory());
  }
}

// A domain is a handle of 64 bits. Two can be equal in one half.
TEST_P(MemoryContract, frame_changes_domain_then_it_must_be_populated_and_reads_as_zeros) {
  constexpr std::uint64_t kMine = std::uint64_t{7} << 32 | 5;
  for (const std::uint64_t other :
       {std::uint64_t{0}, std::uint64_t{9} << 32 | 5, std::uint64_t{7} << 32 | 6}) {
    for (const Class& each : classes()) {
      const FrameId mine = populated(each, kMine);
      std::byte* const at = space().bytes_at(mine, nullptr);
      put(mine, each.bytes, 1);
      give_back(mine);
      const FrameId theirs = acquire(each, other);
      ASSERT_TRUE(theirs.valid());
      EXPECT_EQ(space().bytes_at(theirs, nullptr), at) << "the same memory, or this proves nothing";
      EXPECT_TRUE(memory().needs_populate(theirs)) << each.bytes;
      ASSERT_TRUE(memory().populate(theirs, false, nullptr).ok());
      EXPECT_FALSE(memory().needs_populate(theirs));
      EXPECT_TRUE(zeros(theirs, each.bytes)) << each.bytes;
      // The first owner may come back, and must not see the bytes of the second.
      put(theirs, each.bytes, 2);
      give_back(theirs);
      const FrameId again = populated(each, kMine);
      EXPECT_TRUE(zeros(again, each.bytes)) << each.bytes;
      give_back(again);
      (void)trim(memory());
    }
  }
}

TEST_P(MemoryContract, frame_is_acquired_again_in_its_domain_then_its_bytes_are_its_own) {
  for (const Class& each : classes()) {
    const FrameId frame = filled(each, 4, 3);
    give_back(frame);
    const FrameId again = acquire(each, 3);
    EXPECT_FALSE(memory().needs_populate(again)) << "within a domain nothing is cleared";
    EXPECT_TRUE(holds(again, each.bytes, 4)) << each.bytes;
    give_back(again);
    (void)trim(memory());
  }
}

// Frames of every size use the same memory one after another. No size may worker bytes to the next.
TEST_P(MemoryContract, memory_is_cut_anew_for_another_domain_then_it_reads_as_zeros) {
  std::uint64_t domain = 1;
  for (const std::uint64_t first : facts().extents) {
    for (const std::uint64_t second : facts().extents) {
      for (std::uint64_t used = 0; used < 2 * charge({Pool::locked, first}); used += first) {
        put(populated({Pool::locked, first}, domain), first, domain);
        if (used > 64 * kSmallestExtent) {
          break;
        }
      }
      give_back_all();
      ++domain;
      for (std::uint64_t used = 0; used < 2 * charge({Pool::locked, second}); used += second) {
        const FrameId frame = populated({Pool::locked, second}, domain);
        ASSERT_TRUE(zeros(frame, second)) << first << " bytes, then " << second;
        if (used > 64 * kSmallestExtent) {
          break;
        }
      }
      give_back_all();
      ++domain;
    }
  }
}

TEST_P(MemoryContract, neighbours_are_cleared_then_a_frame_keeps_its_bytes) {
  for (const Class& each : classes()) {
    const FrameId left = populated(each, 1), kept = populated(each, 1), right = populated(each, 1);
    put(kept, each.bytes, 8);
    give_back(left);
    give_back(right);
    for (int i = 0; i < 2; ++i) {
      const FrameId other = acquire(each, 2);
      ASSERT_TRUE(memory().populate(other, true, nullptr).ok());
      put(other, each.bytes, 9);
    }
    EXPECT_TRUE(holds(kept, each.bytes, 8)) << each.bytes;
    give_back_all();
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, populate_is_refused_then_the_frame_is_as_before_and_may_be_tried_again) {
  const FrameId frame = acquire({Pool::locked, largest()});
  const FrameUsage before = usage();
  if (subject().refuse("populate", nullptr)) {
    EXPECT_FALSE(memory().populate(frame, false, nullptr).ok());
    subject().forgive();
  }
  EXPECT_TRUE(memory().needs_populate(frame));
  EXPECT_EQ(usage().used(), before.used());
  ASSERT_TRUE(memory().populate(frame, false, nullptr).ok());
  EXPECT_TRUE(zeros(frame, largest()));
}

/// Records locks, and checks that each lock is taken and released once.
class RecordingLocker final : public PageLocker {
 public:
  Status lock(std::byte* at, std::uint64_t bytes) override {
    if (refuses) {
      return Code::no_capacity;
    }
    EXPECT_TRUE(locked.emplace(at, bytes).second) << "locked twice";
    return {};
  }
  void unlock(std::byte* at) override { EXPECT_EQ(locked.erase(at), 1U) << "not locked"; }
  bool covers(const std::byte* at, std::uint64_t bytes) const {
    for (const auto& [first, length] : locked) {
      if (first <= at && at + bytes <= first + length) {
        return true;
      }
    }
    return false;
  }
  std::map<std::byte*, std::uint64_t> locked;
  bool refuses = false;
};

TEST_P(MemoryContract, pages_are_locked_until_they_return_to_the_kernel) {
  RecordingLocker locker;
  if (!subject().lock_pages_with(locker)) {
    locks_nothing();
    return;
  }
  for (const Class& each : classes()) {
    const FrameId frame = filled(each, 6);
    EXPECT_FALSE(memory().has_locked_pages(frame));
    EXPECT_TRUE(memory().lock_pages(frame)) << each.bytes;
    EXPECT_TRUE(memory().lock_pages(frame)) << "they stay locked";
    EXPECT_TRUE(locker.covers(space().bytes_at(frame, nullptr), each.bytes));
    EXPECT_TRUE(holds(frame, each.bytes, 6));
    give_back(frame);
    (void)trim(memory());
    EXPECT_TRUE(locker.locked.empty()) << "pages return to the kernel unlocked";
  }
}

TEST_P(MemoryContract, lock_is_refused_then_the_frame_is_not_locked) {
  RecordingLocker locker;
  if (!subject().lock_pages_with(locker)) {
    locks_nothing();
    return;
  }
  locker.refuses = true;
  const FrameId frame = populated({Pool::locked, largest()});
  EXPECT_FALSE(memory().lock_pages(frame));
  EXPECT_FALSE(memory().lock_pages(frame));
  give_back(frame);
  (void)trim(memory());
}

TEST_P(MemoryContract, locked_frame_appears_in_a_window_then_its_pages_are_unlocked) {
  RecordingLocker locker;
  if (!subject().lock_pages_with(locker)) {
    locks_nothing();
    return;
  }
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    if (!own(bytes)) {
      EXPECT_FALSE(memory().lock_pages(window_frame(bytes))) << "it has no memory yet";
      continue;
    }
    const FrameId frame = filled(window_class(bytes), 3);
    ASSERT_TRUE(memory().lock_pages(frame));
    EXPECT_TRUE(memory().has_locked_pages(frame));
    Mechanism used{};
    ASSERT_TRUE(space().map(frame, at, used).ok());
    is_at(frame, at);
    EXPECT_TRUE(locker.locked.empty());
    EXPECT_TRUE(sees(at, bytes, 3));
    EXPECT_FALSE(memory().lock_pages(frame)) << "it is in a window";
    ASSERT_TRUE(space().unmap(frame, at).ok());
    is_at(frame, nullptr);
    give_back(frame);
    (void)trim(memory());
  }
}

}  // namespace
}  // namespace tiermem::contract

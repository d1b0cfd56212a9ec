// Frames in windows: plain windows of host memory, and mapped windows, in which touches wait.
#include <atomic>
#include <thread>

#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

/// Brings bytes to a frame on its way into a window, and maps it.
Status bring(MemorySubject& subject, FrameId frame, std::byte* at, const Block& bytes) {
  Memory& memory = subject.memory();
  if (memory.needs_populate(frame)) {
    if (Status populated = memory.populate(frame, false, at); !populated.ok()) {
      return populated;
    }
  }
  std::byte* const landing = subject.space().bytes_at(frame, at);
  EXPECT_NE(landing, nullptr);
  subject.write(landing, bytes.data(), bytes.size());
  Mechanism used{};
  return subject.space().map(frame, at, used);
}

TEST_P(HostMemoryContract, frame_is_mapped_then_its_bytes_are_in_the_window_and_nowhere_else) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const first = window(4 * bytes, bytes, false);
    ASSERT_NE(first, nullptr);
    std::vector<FrameId> frames;
    for (std::uint64_t i = 0; i < 4; ++i) {
      frames.push_back(window_frame(bytes));
      ASSERT_TRUE(frames.back().valid());
    }
    // Not in the order of their addresses.
    for (const std::uint64_t i : {2, 0, 3, 1}) {
      std::byte* const at = first + i * bytes;
      const Status mapped = bring(subject(), frames[i], at, pattern(bytes, i + 1));
      ASSERT_TRUE(mapped.ok()) << mapped.message();
      is_at(frames[i], at);
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(sees(first + i * bytes, bytes, i + 1)) << bytes << " bytes, extent " << i;
    }
    // The program writes one extent; the others keep their bytes.
    store(first + bytes, bytes, 9);
    EXPECT_TRUE(sees(first, bytes, 1));
    EXPECT_TRUE(sees(first + bytes, bytes, 9));
    EXPECT_TRUE(sees(first + 2 * bytes, bytes, 3));
    for (std::uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(space().unmap(frames[i], first + i * bytes).ok());
      is_at(frames[i], nullptr);
      give_back(frames[i]);
    }
    EXPECT_EQ(usage().in_use, 0U);
    (void)trim(memory());
  }
}

TEST_P(HostMemoryContract, frame_is_unmapped_then_it_is_fresh_or_has_the_bytes_of_its_window) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const first = window(2 * bytes, bytes, false);
    const FrameId frame = window_frame(bytes);
    std::byte* at = first;
    for (std::uint64_t round = 1; round < 5; ++round) {
      ASSERT_TRUE(bring(subject(), frame, at, pattern(bytes, round)).ok());
      is_at(frame, at);
      ASSERT_TRUE(sees(at, bytes, round));
      store(at, bytes, round + 100);
      ASSERT_TRUE(space().unmap(frame, at).ok());
      is_at(frame, nullptr);
      if (!memory().needs_populate(frame)) {
        EXPECT_TRUE(holds(frame, bytes, round + 100)) << bytes;
      }
      at = at == first ? first + bytes : first;  // It appears elsewhere.
    }
    EXPECT_EQ(usage().in_use, charge(window_class(bytes))) << "it is charged in a window or not";
    give_back(frame);
    (void)trim(memory());
  }
}

TEST_P(HostMemoryContract, window_shows_another_frame_then_it_has_that_frames_bytes_only) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    for (std::uint64_t domain = 1; domain < 4; ++domain) {
      const FrameId frame = window_frame(bytes, domain);
      ASSERT_TRUE(memory().populate(frame, true, at).ok());
      Mechanism used{};
      ASSERT_TRUE(space().map(frame, at, used).ok());
      EXPECT_TRUE(sees(at, bytes, 0)) << "a cleared frame shows zeros";
      store(at, bytes, domain);
      ASSERT_TRUE(space().unmap(frame, at).ok());
      give_back(frame);
    }
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, frame_is_mapped_without_a_window_then_nothing_changes) {
  const FrameId frame = filled({Pool::locked, largest()}, 4);
  Mechanism used{};
  EXPECT_TRUE(space().map(frame, nullptr, used).ok());
  EXPECT_TRUE(holds(frame, largest(), 4));
  EXPECT_TRUE(space().unmap(frame, nullptr).ok());
  EXPECT_TRUE(holds(frame, largest(), 4));
}

TEST_P(MemoryContract, windows_are_disjoint_and_released_ones_are_of_use_again) {
  for (const bool mapped : {false, true}) {
    const auto& extents = mapped ? facts().mapped_extents : facts().window_extents;
    for (const std::uint64_t bytes : extents) {
      std::vector<std::byte*> windows;
      for (int i = 0; i < 8; ++i) {
        windows.push_back(window(2 * bytes, bytes, mapped));
        ASSERT_NE(windows.back(), nullptr);
      }
      std::vector<std::byte*> sorted = windows;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 1; i < sorted.size(); ++i) {
        EXPECT_GE(sorted[i] - sorted[i - 1], static_cast<std::ptrdiff_t>(2 * bytes));
      }
      for (std::byte* const each : windows) {
        EXPECT_FALSE(space().lent(each, 2 * bytes)) << "no program mapped memory there";
        release(each);
      }
      std::byte* const again = window(2 * bytes, bytes, mapped);
      EXPECT_NE(again, nullptr);
    }
  }
  EXPECT_EQ(usage().used(), 0U) << "addresses cost no memory";
}

TEST_P(MemoryContract, windows_are_not_offered_for_a_size_then_they_are_refused) {
  for (const std::uint64_t bytes : missing(facts().window_extents)) {
    refuses_windows(bytes, false);
  }
  if (mapped_extents().empty()) {
    const FrameId frame = filled({Pool::locked, largest()}, 2);
    EXPECT_FALSE(space().withdraws_slowly(frame));
    EXPECT_TRUE(holds(frame, largest(), 2));
  }
}

TEST_P(HostMemoryContract, calls_on_windows_are_refused_then_the_frame_is_where_it_was) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    if (!own(bytes)) {
      EXPECT_EQ(space().bytes_at(window_frame(bytes), at), at) << "it has no other memory";
      continue;
    }
    const FrameId frame = filled(window_class(bytes), 1);
    Mechanism used{};
    if (subject().refuse("map", at)) {
      EXPECT_FALSE(space().map(frame, at, used).ok());
      subject().forgive();
      EXPECT_TRUE(holds(frame, bytes, 1)) << "it has its own address and its bytes";
    }
    ASSERT_TRUE(space().map(frame, at, used).ok());
    is_at(frame, at);
    store(at, bytes, 2);
    for (const char* const call : {"unmap", "take_home"}) {
      if ((call[0] == 't' && !facts().takes_home) || !subject().refuse(call, at)) {
        continue;
      }
      EXPECT_FALSE((call[0] == 't' ? space().take_home(frame, at) : space().unmap(frame, at)).ok());
      subject().forgive();
      EXPECT_TRUE(sees(at, bytes, 2)) << call << " failed: the frame is still in its window";
    }
    ASSERT_TRUE(space().unmap(frame, at).ok());
    is_at(frame, nullptr);
    if (facts().takes_home && !memory().needs_populate(frame)) {
      put(frame, bytes, 3);
      if (subject().refuse("show", at)) {
        EXPECT_FALSE(space().show(frame, at).ok());
        subject().forgive();
        EXPECT_TRUE(holds(frame, bytes, 3)) << "its bytes may be the only copy";
      }
    }
    give_back(frame);
    (void)trim(memory());
  }
}

TEST_P(HostMemoryContract, frame_goes_home_and_is_shown_again_with_every_byte) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(2 * bytes, bytes, false);
    const FrameId frame = window_frame(bytes), other = window_frame(bytes);
    ASSERT_TRUE(bring(subject(), frame, at, pattern(bytes, 1)).ok());
    is_at(frame, at);
    ASSERT_TRUE(bring(subject(), other, at + bytes, pattern(bytes, 50)).ok());
    is_at(other, at + bytes);
    if (!facts().takes_home || !own(bytes)) {
      EXPECT_FALSE(space().take_home(frame, at).ok());
      EXPECT_TRUE(sees(at, bytes, 1)) << "the whole frame is still there";
      for (const FrameId each : {frame, other}) {
        ASSERT_TRUE(space().unmap(each, each == frame ? at : at + bytes).ok());
        give_back(each);
      }
      continue;
    }
    for (std::uint64_t round = 1; round < 4; ++round) {
      store(at, bytes, round);
      const Status taken = space().take_home(frame, at);
      ASSERT_TRUE(taken.ok()) << taken.message();
      is_at(frame, nullptr);
      ASSERT_TRUE(holds(frame, bytes, round)) << bytes;
      EXPECT_EQ(usage().in_use, 2 * charge(window_class(bytes)));
      put(frame, bytes, round + 10);  // A device writes it.
      const Status shown = space().show(frame, at);
      ASSERT_TRUE(shown.ok()) << shown.message();
      is_at(frame, at);
      ASSERT_TRUE(sees(at, bytes, round + 10)) << bytes;
    }
    EXPECT_TRUE(sees(at + bytes, bytes, 50)) << "a neighbour stays as it is";
    for (const FrameId each : {frame, other}) {
      ASSERT_TRUE(space().unmap(each, each == frame ? at : at + bytes).ok());
      give_back(each);
    }
    (void)trim(memory());
  }
}

// ---- Mapped windows ----------------------------------------------------------------------------

TEST_P(MemoryContract, frame_is_restored_and_withdrawn_then_every_byte_travels_with_it) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const first = window(3 * bytes, bytes, true);
    ASSERT_NE(first, nullptr);
    EXPECT_TRUE(absent(first, 3 * bytes)) << "touches wait until an extent is there";
    std::vector<FrameId> frames;
    for (std::uint64_t i = 0; i < 3; ++i) {
      frames.push_back(populated(window_class(bytes)));
      put(frames.back(), bytes, i + 1);
    }
    for (std::uint64_t round = 0; round < 3; ++round) {
      for (std::uint64_t i = 0; i < 3; ++i) {
        std::byte* const at = first + i * bytes;
        const Status restored = space().restore(frames[i], at);
        ASSERT_TRUE(restored.ok()) << restored.message();
        is_at(frames[i], at);
        ASSERT_TRUE(present(at, bytes));
        EXPECT_TRUE(sees(at, bytes, 10 * round + i + 1)) << bytes << " bytes, extent " << i;
        EXPECT_TRUE(i == 2 || absent(at + bytes, bytes)) << "its neighbour is still absent";
      }
      for (std::uint64_t i = 0; i < 3; ++i) {
        std::byte* const at = first + i * bytes;
        // In one round the program has written nothing, in another one page.
        store(at, round == 1 ? bytes : kSmallestExtent, 10 * (round + 1) + i + 1);
        const Block now = [&] {
          Block seen(bytes);
          subject().read(seen.data(), at, bytes);
          return seen;
        }();
        const Status withdrawn = space().withdraw(frames[i], at);
        ASSERT_TRUE(withdrawn.ok()) << withdrawn.message();
        is_at(frames[i], nullptr);
        EXPECT_TRUE(absent(at, bytes)) << "later touches wait";
        EXPECT_TRUE(i == 2 || present(at + bytes, bytes)) << "its neighbour is still there";
        EXPECT_EQ(bytes_of(subject(), frames[i], bytes), now) << bytes;
        put(frames[i], bytes, 10 * (round + 1) + i + 1);
      }
      EXPECT_EQ(usage().in_use, 3 * charge(window_class(bytes)));
    }
    give_back_all();
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, frame_is_unmapped_from_a_mapped_window_then_touches_wait_again) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    for (std::uint64_t round = 1; round < 4; ++round) {
      const FrameId frame = filled(window_class(bytes), round);
      ASSERT_TRUE(space().restore(frame, at).ok());
      is_at(frame, at);
      EXPECT_TRUE(sees(at, bytes, round));
      ASSERT_TRUE(space().unmap(frame, at).ok());
      is_at(frame, nullptr);
      EXPECT_TRUE(absent(at, bytes));
      give_back(frame);
    }
    EXPECT_EQ(usage().in_use, 0U);
    (void)trim(memory());
  }
}

TEST_P(MemoryContract, withdrawal_is_refused_then_the_whole_frame_is_in_its_window) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    const FrameId frame = filled(window_class(bytes), 6);
    ASSERT_TRUE(space().restore(frame, at).ok());
    is_at(frame, at);
    if (subject().refuse("withdraw", at + bytes - kSmallestExtent)) {
      EXPECT_FALSE(space().withdraw(frame, at).ok());
      subject().forgive();
    }
    EXPECT_TRUE(present(at, bytes)) << bytes;
    EXPECT_TRUE(sees(at, bytes, 6)) << bytes;
    ASSERT_TRUE(space().withdraw(frame, at).ok());
    is_at(frame, nullptr);
    EXPECT_TRUE(holds(frame, bytes, 6));
  }
}

TEST_P(MemoryContract, absent_extent_is_touched_then_the_thread_waits_and_sees_its_bytes) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    if (!facts().touches_wait) {  // The simulator's threads ask before they touch.
      EXPECT_TRUE(absent(at, bytes));
      continue;
    }
    const FrameId frame = filled(window_class(bytes), 5);
    std::uint64_t first = 0, last = 0;
    std::thread toucher([&] {
      const auto* const words = reinterpret_cast<const volatile std::uint64_t*>(at);
      last = words[bytes / 8 - 1];
      first = words[0];
      subject().stop_touches();
    });
    EXPECT_TRUE(subject().wait_for_touch()) << "the touch did not wait";
    EXPECT_TRUE(space().restore(frame, at).ok());
    is_at(frame, at);
    subject().wake();
    toucher.join();
    const Block expected = pattern(bytes, 5);
    EXPECT_EQ(std::memcmp(&first, expected.data(), 8), 0) << "a frame appears whole";
    EXPECT_EQ(std::memcmp(&last, expected.data() + bytes - 8, 8), 0) << bytes;
    ASSERT_TRUE(space().withdraw(frame, at).ok());
    is_at(frame, nullptr);
    give_back_all();
    break;  // Touches cannot be waited for after the first round.
  }
}

TEST_P(MemoryContract, questions_about_mapped_frames_are_asked_then_nothing_changes) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    const FrameId frame = filled(window_class(bytes), 5);
    (void)space().restores_at_once(frame, at);
    EXPECT_NE(space().restores_by(at), Mechanism::in_place);
    ASSERT_TRUE(space().restore(frame, at).ok());
    is_at(frame, at);
    (void)space().withdraws_slowly(frame);
    (void)memory().has_locked_pages(frame);
    EXPECT_FALSE(space().may_be_unchanged(frame)) << "it did not arrive watched";
    EXPECT_FALSE(memory().lock_pages(frame)) << "it is in a window";
    EXPECT_TRUE(sees(at, bytes, 5));
  }
}

}  // namespace
}  // namespace tiermem::contract

// Opaque memory: copies, direct copies between two memories, and windows of device addresses.
// Memory of the host refuses these calls.
#include <deque>

#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

TEST_P(HostMemoryContract, host_memory_is_asked_for_copies_then_it_refuses_them) {
  const FrameId frame = filled({Pool::locked, largest()}, 1);
  Block bytes = pattern(largest(), 2);
  CountedCompletion in, out, from;
  EXPECT_TRUE(memory().copy_in(frame, bytes.data(), bytes.size(), in));
  EXPECT_TRUE(memory().copy_out(bytes.data(), frame, bytes.size(), out));
  EXPECT_TRUE(memory().copy_from(frame, memory(), frame, bytes.size(), from));
  for (CountedCompletion* const end : {&in, &out, &from}) {
    EXPECT_EQ(end->status.code(), Code::unsupported);
    EXPECT_EQ(end->calls(), 0) << "the result is in the status only";
  }
  EXPECT_FALSE(memory().reaches(memory()));
  EXPECT_FALSE(space().shows(frame, bytes.data()));
  EXPECT_TRUE(holds(frame, largest(), 1));
  EXPECT_EQ(bytes, pattern(largest(), 2));
}

TEST_P(OpaqueMemoryContract, bytes_are_copied_in_and_out_then_each_ending_is_called_once) {
  struct Copy {
    FrameId frame;
    Block bytes;
    CountedCompletion end;
  };
  for (const std::uint64_t bytes : facts().extents) {
    std::deque<Copy> copies;
    for (std::uint64_t i = 0; i < 6; ++i) {
      copies.emplace_back();
      copies.back().frame = populated({Pool::locked, bytes});
      copies.back().bytes = pattern(bytes, i + 1);
    }
    for (Copy& copy : copies) {
      ASSERT_FALSE(memory().copy_in(copy.frame, copy.bytes.data(), bytes, copy.end));
    }
    for (Copy& copy : copies) {
      copy.end.wait(subject());
      EXPECT_TRUE(copy.end.status.ok()) << copy.end.status.message();
    }
    std::deque<Copy> back;
    for (const Copy& copy : copies) {
      back.emplace_back();
      back.back().bytes = Block(bytes);
      ASSERT_FALSE(memory().copy_out(back.back().bytes.data(), copy.frame, bytes, back.back().end));
    }
    for (Copy& copy : back) {
      copy.end.wait(subject());
      EXPECT_TRUE(copy.end.status.ok()) << copy.end.status.message();
    }
    for (std::size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(back[i].bytes, pattern(bytes, i + 1)) << bytes << " bytes, copy " << i;
      EXPECT_EQ(copies[i].end.calls(), 1);
      EXPECT_EQ(back[i].end.calls(), 1);
    }
    give_back_all();
    (void)trim(memory());
  }
}

TEST_P(OpaqueMemoryContract, part_of_a_frame_is_copied_then_the_rest_keeps_its_bytes) {
  const std::uint64_t bytes = largest();
  const FrameId frame = populated({Pool::locked, bytes});
  put(frame, bytes, 1);
  Block some = pattern(kSmallestExtent, 2);
  ASSERT_TRUE(copy(subject(), true, frame, some.data(), some.size()).ok());
  Block expected = pattern(bytes, 1);
  std::copy(some.begin(), some.end(), expected.begin());
  EXPECT_EQ(bytes_of(subject(), frame, bytes), expected);
  Block back(2 * kSmallestExtent, std::byte{0x5C});
  ASSERT_TRUE(copy(subject(), false, frame, back.data(), kSmallestExtent).ok());
  EXPECT_EQ(std::memcmp(back.data(), some.data(), kSmallestExtent), 0);
  EXPECT_EQ(back[kSmallestExtent], std::byte{0x5C}) << "no byte beyond the length";
}

TEST_P(OpaqueMemoryContract, copies_to_a_device_get_their_places_in_order_before_they_end) {
  struct Placed final : CountedCompletion {
    std::uint64_t ordinal = 0;
    int times_begun = 0, calls_when_begun = 0;
  };
  const FrameId frame = populated({Pool::locked, largest()});
  const Block bytes = pattern(largest(), 1);
  std::deque<Placed> all;
  for (int i = 0; i < 4; ++i) {
    Placed& placed = all.emplace_back();
    placed.begun = [](Completion& end, std::uint64_t ordinal) {
      auto& self = static_cast<Placed&>(end);
      self.ordinal = ordinal;
      ++self.times_begun;
      self.calls_when_begun = self.calls();
    };
    ASSERT_FALSE(memory().copy_in(frame, bytes.data(), bytes.size(), placed));
  }
  std::uint64_t before = 0;
  for (Placed& placed : all) {
    placed.wait(subject());
    EXPECT_EQ(placed.times_begun, 1);
    EXPECT_EQ(placed.calls_when_begun, 0) << "begun comes before ended";
    EXPECT_GT(placed.ordinal, before);
    before = placed.ordinal;
  }
  EXPECT_TRUE(holds(frame, largest(), 1));
}

TEST_P(OpaqueMemoryContract, copy_fails_then_its_ending_has_the_error_and_is_called_once) {
  for (const bool in : {true, false}) {
    make();
    const FrameId frame = populated({Pool::locked, largest()});
    ASSERT_TRUE(subject().refuse(in ? "copy_in" : "copy_out", nullptr));
    Block bytes = pattern(largest(), 1);
    CountedCompletion end;
    const bool at_once = in ? memory().copy_in(frame, bytes.data(), bytes.size(), end)
                            : memory().copy_out(bytes.data(), frame, bytes.size(), end);
    if (!at_once) {
      end.wait(subject());
    }
    EXPECT_FALSE(end.status.ok());
    EXPECT_EQ(end.calls(), at_once ? 0 : 1);
    subject().forgive();
    give_back_all();
  }
}

TEST_P(OpaqueMemoryContract, two_memories_reach_each_other_then_bytes_come_directly) {
  Memory* const other = subject().neighbour();
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(memory().reaches(*other));
  EXPECT_FALSE(memory().reaches(memory()));
  const FrameId to = filled({Pool::locked, largest()}, 9);
  const FrameId from = other->acquire_frame({Pool::locked, largest(), 0});
  ASSERT_TRUE(other->populate(from, false, nullptr).ok());
  Block bytes = pattern(largest(), 2);
  CountedCompletion in, across;
  if (!other->copy_in(from, bytes.data(), bytes.size(), in)) {
    in.wait(subject());
  }
  ASSERT_TRUE(in.status.ok()) << in.status.message();
  const bool at_once = memory().copy_from(to, *other, from, largest(), across);
  if (!at_once) {
    across.wait(subject());
  }
  EXPECT_TRUE(across.status.ok()) << across.status.message();
  EXPECT_EQ(across.calls(), at_once ? 0 : 1);
  EXPECT_TRUE(holds(to, largest(), 2));
  other->return_frame(from);
  (void)trim(*other);
  EXPECT_EQ(other->usage().used(), 0U);
}

// ---- Windows of device addresses ---------------------------------------------------------------

TEST_P(OpaqueMemoryContract, opaque_frame_is_shown_then_it_has_its_own_address_as_well) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(2 * bytes, bytes, false);
    ASSERT_NE(at, nullptr);
    const FrameId frame = populated(window_class(bytes));
    std::byte* const own = space().bytes_at(frame, at);
    put(frame, bytes, 1);
    EXPECT_FALSE(space().shows(frame, at));
    const Status shown = space().show(frame, at);
    ASSERT_TRUE(shown.ok()) << shown.message();
    EXPECT_TRUE(space().shows(frame, at));
    EXPECT_FALSE(space().shows(frame, at + bytes));
    EXPECT_TRUE(sees(at, bytes, 1));
    EXPECT_EQ(space().bytes_at(frame, at), own);
    EXPECT_TRUE(sees(own, bytes, 1));
    store(at, bytes, 2);
    EXPECT_TRUE(holds(frame, bytes, 2)) << "both addresses are the same memory";
    ASSERT_TRUE(space().show(frame, at).ok()) << "it is there already";
    ASSERT_TRUE(space().show(frame, at + bytes).ok());
    EXPECT_TRUE(space().shows(frame, at + bytes));
    EXPECT_FALSE(space().shows(frame, at)) << "a frame is in one window at a time";
    EXPECT_TRUE(sees(at + bytes, bytes, 2));
    EXPECT_EQ(usage().in_use, charge(window_class(bytes))) << "a second address costs no memory";
    release(at);
    EXPECT_TRUE(holds(frame, bytes, 2)) << "its own address stays";
    give_back(frame);
    (void)trim(memory());
  }
}

TEST_P(OpaqueMemoryContract, another_frame_is_shown_at_the_address_then_only_that_one_is_there) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    const FrameId one = populated(window_class(bytes));
    const FrameId other = populated(window_class(bytes));
    put(one, bytes, 1);
    put(other, bytes, 2);
    ASSERT_TRUE(space().show(one, at).ok());
    ASSERT_TRUE(space().show(other, at).ok());
    EXPECT_TRUE(space().shows(other, at));
    EXPECT_FALSE(space().shows(one, at));
    EXPECT_TRUE(sees(at, bytes, 2));
    EXPECT_TRUE(holds(one, bytes, 1));
    give_back(one);
    give_back(other);
    (void)trim(memory());
  }
}

TEST_P(OpaqueMemoryContract, shown_frame_belongs_to_another_extent_then_it_leaves_the_window) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    const FrameId frame = filled(window_class(bytes), 1);
    ASSERT_TRUE(space().show(frame, at).ok());
    give_back(frame);
    const FrameId next = acquire({space().window_pool(bytes), bytes});
    ASSERT_TRUE(next.valid());
    EXPECT_TRUE(memory().needs_populate(next)) << "it is in the window of another extent";
    ASSERT_TRUE(memory().populate(next, false, nullptr).ok());
    EXPECT_FALSE(memory().needs_populate(next));
    EXPECT_FALSE(space().shows(next, at));
    put(next, bytes, 2);
    EXPECT_TRUE(holds(next, bytes, 2));
    // A populate for the same address leaves it there.
    ASSERT_TRUE(space().show(next, at).ok());
    ASSERT_TRUE(memory().populate(next, false, at).ok());
    EXPECT_TRUE(space().shows(next, at));
    give_back(next);
    (void)trim(memory());
  }
}

TEST_P(OpaqueMemoryContract, show_is_refused_then_the_frame_is_at_its_own_address) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    const FrameId frame = filled(window_class(bytes), 1);
    ASSERT_TRUE(subject().refuse("show", at));
    EXPECT_FALSE(space().show(frame, at).ok());
    subject().forgive();
    EXPECT_FALSE(space().shows(frame, at));
    EXPECT_TRUE(holds(frame, bytes, 1));
    ASSERT_TRUE(space().show(frame, at).ok());
    EXPECT_TRUE(sees(at, bytes, 1));
  }
}

TEST_P(OpaqueMemoryContract, shown_frame_is_trimmed_then_the_window_shows_nothing_of_it) {
  for (const std::uint64_t bytes : facts().window_extents) {
    std::byte* const at = window(bytes, bytes, false);
    const FrameId frame = filled(window_class(bytes), 1);
    ASSERT_TRUE(space().show(frame, at).ok());
    give_back(frame);
    EXPECT_EQ(trim(memory()), charge(window_class(bytes)));
    EXPECT_EQ(usage().used(), 0U);
    const FrameId next = populated(window_class(bytes));
    EXPECT_FALSE(space().shows(next, at));
    put(next, bytes, 2);
    ASSERT_TRUE(space().show(next, at).ok()) << "the address is free";
    EXPECT_TRUE(sees(at, bytes, 2));
    give_back(next);
    (void)trim(memory());
  }
}

}  // namespace
}  // namespace tiermem::contract

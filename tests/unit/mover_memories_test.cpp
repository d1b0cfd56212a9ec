// Several memories in the host's space: where extents come to, how victims sink to memories of
// higher rank, and how extents that are used climb.
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using Step = SteppedMover;
constexpr Place kSecond{Kind::numa, 1};

TEST(MoverMemories, first_memory_is_full_then_extents_come_to_the_next_one) {
  Step m({.frames = 2, .slower = {2}});
  std::vector<Handle> all;
  for (unsigned char i = 1; i <= 4; ++i) {
    all.push_back(m.buffer());
    m.write(all.back(), i);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(m.rank(all[i]), i < 2 ? 0u : 1u);
    EXPECT_EQ(m.value(all[i]), static_cast<int>(i + 1));
  }
  const Stats stats = m.stats();
  ASSERT_NE(stats.tier(kSecond), nullptr);
  EXPECT_EQ(stats.tier(kSecond)->used, 2 * Step::kExtent);
  EXPECT_EQ(stats.dram_used, 2 * Step::kExtent);
}

TEST(MoverMemories, everything_in_the_first_memory_is_pinned_then_room_is_made_in_the_next_one) {
  Step m({.frames = 1, .slower = {1}});
  const Handle pinned = m.buffer(), other = m.buffer(), third = m.buffer();
  m.write(pinned, 1);
  Call& view = m.acquire(pinned, kRead);
  m.write(other, 2);
  ASSERT_EQ(m.rank(other), 1u);
  EXPECT_EQ(m.value(third), 0);
  EXPECT_EQ(m.rank(third), 1u);
  EXPECT_FALSE(m.resident(other));
  m.release(view);
  EXPECT_EQ(m.value(other), 2);
}

TEST(MoverMemories,
     extent_is_needed_in_the_first_memory_then_its_victim_sinks_and_keeps_its_bytes) {
  Step m({.frames = 2, .slower = {2}});
  const Handle two = m.buffer(2);  // In a window.
  m.write(two, 7);
  std::byte* const window = m.window(two);
  const Handle one = m.buffer(), another = m.buffer(), last = m.buffer();
  m.write(one, 1);
  m.write(another, 2);
  (void)m.free(one);
  m.end_all();
  m.write(last, 3);
  // All four frames are in use. A smaller budget of the first memory lets one of its extents sink.
  (void)m.free(another);
  m.end_all();
  Call& smaller = m.set_budget(Step::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.rank(two, 0) + m.rank(two, 1), 1u);
  EXPECT_EQ(m.window(two), window);
  EXPECT_EQ(m.value(two), 7);
  EXPECT_EQ(m.host.relocated(), Step::kExtent);
}

TEST(MoverMemories, budgets_of_both_memories_are_lowered_then_extents_go_on_to_slots) {
  Step m({.frames = 3, .slower = {3}});
  std::vector<Handle> all;
  for (unsigned char i = 1; i <= 6; ++i) {
    all.push_back(m.buffer());
    m.write(all.back(), i);
  }
  Call& first = m.set_budget(Step::kExtent);
  m.end_all();
  Call& second = m.set_budget(Step::kExtent, kSecond);
  m.end_all();
  EXPECT_EQ(first.code(), Code::ok) << first.request.status.message();
  EXPECT_EQ(second.code(), Code::ok) << second.request.status.message();
  for (unsigned char i = 1; i <= 6; ++i) {
    EXPECT_EQ(m.value(all[i - 1]), i);
  }
}

TEST(MoverMemories, no_slot_tier_then_victims_sink_and_the_last_rank_refuses) {
  Step m({.frames = 2, .disks = 0, .slower = {1}});
  const Handle a = m.buffer(), b = m.buffer(), c = m.buffer(), d = m.buffer();
  m.write(a, 1);
  m.write(b, 2);
  m.write(c, 3);
  EXPECT_EQ(m.rank(c), 1u);
  Call& refused = m.acquire(d, kWrite);
  m.end_all();
  EXPECT_EQ(refused.code(), Code::no_capacity) << refused.request.status.message();
  (void)m.free(c);
  m.end_all();
  Call& smaller = m.set_budget(Step::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.rank(a) + m.rank(b), 1u);
  EXPECT_EQ(m.value(a), 1);
  EXPECT_EQ(m.value(b), 2);
}

TEST(MoverMemories,
     other_memory_has_no_pages_then_the_extent_stays_and_the_next_victim_is_written) {
  Step m({.frames = 2, .slower = {2}});
  const Handle a = m.buffer(), b = m.buffer();
  m.write(a, 1);
  m.write(b, 2);
  m.dice.fail("relocate_populate", 1);
  Call& smaller = m.set_budget(Step::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.host.relocated(), 0u);
  EXPECT_EQ(m.value(a), 1);
  EXPECT_EQ(m.value(b), 2);
}

// No event tells when the kernel has pages again.
TEST(MoverMemories, memory_has_no_pages_then_a_waiting_request_tries_it_again_by_itself) {
  Step m({.frames = 1, .slower = {1}});
  const Handle pinned = m.buffer(), wanted = m.buffer();
  Call& view = m.acquire(pinned, kWrite);
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  m.dice.fail("populate");
  Call& waits = m.post(RequestKind::acquire, {Step::access(wanted, kWrite)});
  m.end_all();
  for (int i = 0; i < 100 && !waits.done(); ++i) {
    ASSERT_NE(m.next, Mover::kNever) << "the request waits, and nothing wakes the mover";
    m.at(m.next);
    m.end_all();
  }
  EXPECT_EQ(waits.code(), Code::ok);
  EXPECT_EQ(m.rank(wanted), 1u);
}

TEST(MoverMemories, relocation_is_under_way_then_a_touch_waits_and_finds_its_bytes) {
  Step m({.frames = 2, .slower = {2}});
  const Handle a = m.mapped(), b = m.buffer();
  m.write(b, 1);
  Call& first = m.touch(a, 0, true);
  m.end_all();
  ASSERT_EQ(first.code(), Code::ok);
  std::memset(m.window(a), 9, Step::kExtent);
  m.host.written(m.window(a));
  Call& view = m.acquire(b, kRead);
  Call& smaller = m.set_budget(Step::kExtent);  // Only the mapped extent can sink.
  ASSERT_EQ(m.bits(a).phase(), Phase::outgoing);
  Call& touch = m.touch(a, 1);
  EXPECT_FALSE(touch.done());
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok) << touch.request.status.message();
  EXPECT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.rank(a), 1u);
  EXPECT_EQ(m.window(a)[0], std::byte{9});
  m.release(view);
}

TEST(MoverMemories, views_pin_extents_of_two_memories_then_each_counts_its_own) {
  Step m({.frames = 1, .slower = {1}});
  const Handle a = m.buffer(), b = m.buffer();
  m.write(a, 1);
  m.write(b, 2);
  Call& view = m.acquire(a, kRead);
  EXPECT_EQ(m.stats().dram_pinned, Step::kExtent);
  EXPECT_EQ(m.stats().tier(kSecond)->pinned, 0u);
  Call& other = m.acquire(b, kRead);
  EXPECT_EQ(m.stats().dram_pinned, Step::kExtent);
  EXPECT_EQ(m.stats().tier(kSecond)->pinned, Step::kExtent);
  m.release(view);
  m.release(other);
}

TEST(MoverMemories, frame_is_out_of_its_window_then_the_freed_buffer_is_no_spare_one) {
  Step m({.frames = 2, .slower = {2}});
  const Handle two = m.buffer(2);
  m.write(two, 5);
  m.dice.fail("relocate_map", 1);
  (void)m.set_budget(Step::kExtent);
  m.end_all();
  ASSERT_EQ(m.bits(two, 0).at_home() + m.bits(two, 1).at_home(), 1);
  EXPECT_EQ(m.residency.make_spare(two), Code::busy);
}

TEST(MoverMemories, extent_is_larger_than_the_first_memory_then_the_next_one_has_it) {
  Step m({.frames = 1, .ahead = 4, .slower = {3}});
  const Handle large = m.buffer(1, 0, 2 * Step::kExtent), small = m.buffer();
  m.write(small, 1);
  m.write(large, 2);
  EXPECT_EQ(m.rank(large), 1u);
  EXPECT_EQ(m.value(large), 2);
  EXPECT_EQ(m.value(small), 1);
}

TEST(MoverMemories, frame_cannot_appear_in_its_window_then_it_is_at_home_until_a_view_needs_it) {
  Step m({.frames = 2, .slower = {2}});
  const Handle two = m.buffer(2);
  m.write(two, 5);
  m.dice.fail("relocate_map", 1);
  Call& smaller = m.set_budget(Step::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.bits(two, 0).at_home() + m.bits(two, 1).at_home(), 1);
  EXPECT_EQ(m.value(two), 5);
  EXPECT_FALSE(m.bits(two, 0).at_home() || m.bits(two, 1).at_home());
}

TEST(MoverMemories, extent_of_a_slower_memory_is_used_again_and_again_then_it_climbs) {
  Step m({.frames = 2, .slower = {2}});
  const Handle a = m.buffer(), b = m.buffer(), hot = m.buffer();
  m.write(a, 1);
  m.write(b, 2);
  m.write(hot, 3);
  ASSERT_EQ(m.rank(hot), 1u);
  (void)m.free(a);
  m.end_all();
  for (int i = 0; i < 6 && m.rank(hot) == 1; ++i) {
    EXPECT_EQ(m.value(hot), 3);
    m.now += 2 * Climb::kRoundNs;
    (void)m.ask(RequestKind::clean, {Step::access(b, kRead)});
    m.end_all();
  }
  EXPECT_EQ(m.rank(hot), 0u);
  EXPECT_EQ(m.value(hot), 3);
}

TEST(MoverMemories, mapped_extent_climbs_only_by_a_hint) {
  Step m({.frames = 1, .slower = {2}});
  const Handle a = m.buffer(), mapped = m.mapped();
  m.write(a, 1);
  (void)m.touch(mapped, 0, true);
  m.end_all();
  ASSERT_EQ(m.rank(mapped), 1u);
  (void)m.free(a);
  m.end_all();
  for (int i = 0; i < 4; ++i) {
    m.now += 2 * Climb::kRoundNs;
    (void)m.touch(mapped, 0);
    m.end_all();
  }
  EXPECT_EQ(m.rank(mapped), 1u) << "its uses are not seen";
  (void)m.ask(RequestKind::prefetch, {Step::access(mapped, kRead)});
  m.end_all();
  EXPECT_EQ(m.rank(mapped), 0u);
}

TEST(MoverMemories, device_s_victim_goes_to_any_memory_of_the_host) {
  Step m({.frames = 1, .devices = 1, .on_device = 1, .slower = {2}});
  const Handle pinned = m.buffer(), on_device = m.buffer(), next = m.buffer();
  m.write(pinned, 1);
  Call& view = m.acquire(pinned, kRead);
  m.write_on_device(on_device, 2);
  m.write_on_device(next, 3);
  EXPECT_EQ(m.rank(on_device), 1u);
  EXPECT_EQ(m.value(on_device), 2);
  m.release(view);
}

// ---- Extents that prefer a memory

// Uses the buffer in several rounds, with steps between them.
void use_repeatedly(Step& m, Handle handle, int value) {
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(m.value(handle), value);
    m.now += 2 * Climb::kRoundNs;
    (void)m.ask(RequestKind::clean, {Step::access(handle, kRead)});
    m.end_all();
  }
}

TEST(MoverMemories, extent_prefers_a_slower_memory_then_it_comes_there_first_and_uses_keep_it) {
  Step m({.frames = 3, .slower = {2, 2}});
  const Handle far = m.preferring(2), near = m.preferring(0), plain = m.buffer();
  m.write(far, 1);
  m.write(near, 2);
  m.write(plain, 3);
  EXPECT_EQ(m.rank(far), 2u);
  EXPECT_EQ(m.rank(near), 0u);
  EXPECT_EQ(m.rank(plain), 0u);
  use_repeatedly(m, far, 1);
  EXPECT_EQ(m.rank(far), 2u) << "the first memory had room, and the extent was used";
  EXPECT_EQ(m.host.relocated(), 0u);
}

TEST(MoverMemories, preferred_memory_is_full_then_the_others_take_the_extent_by_rank) {
  Step m({.frames = 1, .slower = {1, 1}});
  std::vector<Handle> all;
  for (unsigned char i = 0; i < 3; ++i) {
    all.push_back(m.preferring(1));
    m.write(all.back(), i);
  }
  EXPECT_EQ(m.rank(all[0]), 1u);
  EXPECT_EQ(m.rank(all[1]), 0u);
  EXPECT_EQ(m.rank(all[2]), 2u);
}

TEST(MoverMemories, all_memories_are_full_then_room_is_made_in_the_preferred_one) {
  Step m({.frames = 1, .slower = {1, 1}});
  const Handle first = m.buffer(), last = m.preferring(2), next = m.preferring(1);
  m.write(first, 1);
  m.write(last, 2);
  m.write(next, 3);
  const Handle wanted = m.preferring(2);
  m.write(wanted, 4);
  EXPECT_EQ(m.rank(wanted), 2u);
  EXPECT_FALSE(m.resident(last));
  EXPECT_EQ(m.rank(first), 0u);
  EXPECT_EQ(m.rank(next), 1u);
}

TEST(MoverMemories, preferred_memory_is_pinned_then_room_is_made_by_rank) {
  Step m({.frames = 1, .slower = {1}});
  const Handle pinned = m.preferring(1), first = m.buffer();
  m.write(pinned, 1);
  m.write(first, 2);
  Call& view = m.acquire(pinned, kRead);
  const Handle wanted = m.preferring(1);
  m.write(wanted, 3);
  EXPECT_EQ(m.rank(wanted), 0u);
  EXPECT_FALSE(m.resident(first));
  m.release(view);
}

TEST(MoverMemories, bound_memory_is_full_then_room_is_made_there_although_others_have_some) {
  Step m({.frames = 3, .slower = {1, 2}});
  const Handle first = m.preferring(1), wanted = m.preferring(1, 1, kBound);
  m.write(first, 1);
  m.write(wanted, 2);
  EXPECT_EQ(m.rank(wanted), 1u);
  EXPECT_EQ(m.rank(first), 2u) << "it was only preferred, and sank";
  EXPECT_EQ(m.value(first), 1);
}

TEST(MoverMemories, bound_memory_is_pinned_then_the_request_is_refused_by_its_name) {
  Step m({.frames = 3, .slower = {1, 2}});
  const Handle pinned = m.preferring(1, 1, kBound), wanted = m.preferring(1, 1, kBound);
  m.write(pinned, 1);
  Call& view = m.acquire(pinned, kRead);
  Call& refused = m.prepare(RequestKind::acquire, {Step::access(wanted, kDiscard)});
  refused.request.deadline_ns = m.now + 5 * Step::kMs;
  m.post(refused);
  m.end_all();
  EXPECT_FALSE(refused.done()) << "the view may end";
  m.at(refused.request.deadline_ns);
  ASSERT_TRUE(refused.done());
  EXPECT_EQ(refused.request.status.code(), Code::no_capacity);
  EXPECT_EQ(refused.request.status.info()->tier, m.host.memory(1).place());
  EXPECT_FALSE(m.resident(wanted));
  m.release(view);
  m.write(wanted, 2);
  EXPECT_EQ(m.rank(wanted), 1u);
}

TEST(MoverMemories, bound_extents_never_fit_in_their_memory_then_they_are_refused_at_once) {
  Step m({.frames = 4, .slower = {1}});
  const Handle wide = m.preferring(1, 2, kBound);
  Call& refused = m.post(RequestKind::acquire, {Step::access(wide, kDiscard)});
  m.end_all();
  ASSERT_TRUE(refused.done());
  EXPECT_EQ(refused.request.status.code(), Code::no_capacity);
}

TEST(MoverMemories, one_request_has_extents_bound_to_different_memories_then_each_is_in_its_own) {
  Step m({.frames = 2, .slower = {2, 1}});
  const Handle first = m.preferring(0, 2, kBound), middle = m.preferring(1, 2, kBound),
               last = m.preferring(2, 1, kBound);
  Call& all =
      m.post(RequestKind::acquire, {Step::access(first, kDiscard), Step::access(middle, kDiscard),
                                    Step::access(last, kDiscard)});
  m.end_all();
  ASSERT_TRUE(all.done());
  EXPECT_TRUE(all.request.status.ok()) << all.request.status.message();
  EXPECT_EQ(m.rank(first, 0) + m.rank(first, 1), 0u);
  EXPECT_EQ(m.rank(middle, 0) + m.rank(middle, 1), 2u);
  EXPECT_EQ(m.rank(last), 2u);
  m.release(all);
}

TEST(MoverMemories, extent_was_in_a_slot_then_it_comes_back_to_the_preferred_memory) {
  Step m({.frames = 3, .slower = {3}});
  const Handle far = m.preferring(1, 2);
  m.write(far, 7);
  m.evict(far);
  EXPECT_EQ(m.value(far), 7);
  EXPECT_EQ(m.rank(far, 0) + m.rank(far, 1), 2u);
  m.evict(far);
  (void)m.ask(RequestKind::prefetch, {Step::access(far, kRead)});
  m.end_all();
  EXPECT_EQ(m.rank(far, 0) + m.rank(far, 1), 2u);
}

TEST(MoverMemories, extent_sank_below_the_preferred_memory_then_it_climbs_back_to_that_one) {
  Step m({.frames = 2, .slower = {1, 2}});
  const Handle middle = m.preferring(1);
  m.write(middle, 5);
  Call& smaller = m.set_budget(0, kSecond);
  m.end_all();
  ASSERT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  ASSERT_EQ(m.rank(middle), 2u);
  (void)m.set_budget(Step::kExtent, kSecond);
  m.end_all();
  use_repeatedly(m, middle, 5);
  EXPECT_EQ(m.rank(middle), 1u) << "the first memory had room, too";
}

TEST(MoverMemories, victim_of_the_first_memory_sinks_to_the_preferred_one) {
  Step m({.frames = 1, .slower = {2, 1}});
  const Handle last = m.preferring(2), far = m.preferring(2);
  m.write(last, 1);
  m.write(far, 2);
  ASSERT_EQ(m.rank(far), 0u);
  (void)m.free(last);
  Call& smaller = m.set_budget(0);
  m.end_all();
  ASSERT_EQ(smaller.code(), Code::ok) << smaller.request.status.message();
  EXPECT_EQ(m.rank(far), 2u);
  EXPECT_EQ(m.value(far), 2);
}

TEST(MoverMemories, hint_prefers_another_memory_then_the_extents_go_there_and_keep_their_bytes) {
  Step m({.frames = 3, .slower = {2}});
  const Handle plain = m.buffer(2), mapped = m.mapped();
  m.write(plain, 1);
  (void)m.touch(mapped, 0, true);
  m.end_all();
  std::memset(m.window(mapped), 9, Step::kExtent);
  m.host.written(m.window(mapped));
  ASSERT_EQ(m.rank(plain, 0) + m.rank(plain, 1) + m.rank(mapped), 0u);
  m.prefer(plain, kSecond);
  EXPECT_EQ(m.rank(plain, 0) + m.rank(plain, 1), 2u);
  EXPECT_EQ(m.value(plain), 1);
  m.prefer(mapped, kSecond);
  EXPECT_EQ(m.rank(mapped), 0u) << "the other memory has no room, and makes none for it";
  m.prefer(plain, {Kind::dram, 0});
  EXPECT_EQ(m.rank(plain, 0) + m.rank(plain, 1), 0u);
  EXPECT_EQ(m.value(plain), 1);
  EXPECT_EQ(m.window(mapped)[0], std::byte{9});
}

TEST(MoverMemories, preferred_memory_gets_room_then_extents_of_faster_memories_go_down_to_it) {
  Step m({.frames = 2, .slower = {1}});
  const Handle other = m.preferring(1), far = m.preferring(1);
  m.write(other, 1);
  m.write(far, 2);
  ASSERT_EQ(m.rank(far), 0u);
  (void)m.free(other);
  m.now += 2 * Climb::kRoundNs;
  m.step();
  m.end_all();
  EXPECT_EQ(m.rank(far), 1u);
  EXPECT_EQ(m.value(far), 2);
}

TEST(MoverMemories, hint_takes_the_preference_back_then_nothing_moves_until_it_is_used) {
  Step m({.frames = 2, .slower = {2}});
  const Handle far = m.preferring(1);
  m.write(far, 3);
  m.prefer(far, {});
  EXPECT_EQ(m.rank(far), 1u);
  use_repeatedly(m, far, 3);
  EXPECT_EQ(m.rank(far), 0u);
}

TEST(MoverMemories, extent_had_not_begun_then_the_hint_holds_for_its_first_use) {
  Step m({.frames = 2, .slower = {2}});
  const Handle far = m.buffer();
  m.prefer(far, kSecond);
  m.write(far, 4);
  EXPECT_EQ(m.rank(far), 1u);
}

TEST(MoverMemories, device_s_victim_goes_to_the_memory_of_the_host_that_it_prefers) {
  Step m({.frames = 2, .devices = 1, .on_device = 1, .slower = {2}});
  const Handle far = m.preferring(1), next = m.buffer();
  m.write_on_device(far, 2);
  m.write_on_device(next, 3);
  EXPECT_EQ(m.rank(far), 1u);
  EXPECT_EQ(m.value(far), 2);
}

// Parts are in the first memory, which has frames for plain windows only. The extent comes to the
// next one as a whole, at once, and nothing leaves the first one for it.
TEST(MoverMemories, first_memory_takes_no_mapped_extent_then_it_comes_whole_to_the_next) {
  Step m({.frames = 2, .parts = true, .slower = {2}});
  m.host.take_plain_only();
  const Handle far = m.mapped();
  (void)m.touch(far, 0, true);
  m.end_all();
  std::memset(m.window(far), 6, Step::kExtent);
  m.host.written(m.window(far));
  m.evict(far);
  const Handle first = m.buffer(), second = m.buffer();
  for (const Handle handle : {first, second}) {
    m.write(handle, 2);
  }
  (void)m.touch(far, 2);
  m.end_all();
  ASSERT_TRUE(m.resident(far));
  EXPECT_EQ(m.rank(far), 1u);
  EXPECT_EQ(m.window(far)[2 * kSmallestExtent], std::byte{6});
  EXPECT_TRUE(m.resident(first) && m.resident(second));
}

TEST(MoverMemories, mapped_extent_prefers_a_slower_memory_then_it_comes_there_whole) {
  Step m({.frames = 4, .parts = true, .slower = {2}});
  const Handle far = m.preferring(1, 1, kMapped);
  (void)m.touch(far, 0, true);
  m.end_all();
  std::memset(m.window(far), 6, Step::kExtent);
  m.host.written(m.window(far));
  m.evict(far);
  (void)m.touch(far, 2);
  m.end_all();
  EXPECT_EQ(m.extent(far).parts, 0u);
  ASSERT_TRUE(m.resident(far));
  EXPECT_EQ(m.rank(far), 1u);
  EXPECT_EQ(m.window(far)[0], std::byte{6});
}

TEST(MoverMemories, buffer_prefers_a_slower_memory_then_it_is_no_spare_one) {
  Step m({.frames = 2, .slower = {2}});
  m.residency.spares.set_limit(4 * Step::kExtent);
  const Handle far = m.preferring(1), near = m.buffer();
  m.write(far, 1);
  m.write(near, 2);
  EXPECT_EQ(m.residency.make_spare(far), Code::busy);
  EXPECT_EQ(m.residency.make_spare(near), Code::ok);
  BufferShape shape;
  shape.bytes = Step::kExtent;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(Step::kExtent));
  shape.extents = 1;
  shape.preferred = 1;
  EXPECT_EQ(m.residency.reuse_spare(shape, false), Handle{0}) << "its frame is of the first memory";
  shape.preferred = 0;
  EXPECT_NE(m.residency.reuse_spare(shape, false), Handle{0});
}

}  // namespace
}  // namespace tiermem

// The destinations of victims, and the costs by which tiers are compared.
#include "policy/placement.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace tiermem {
namespace {

using Destination = Placement::Destination;
using Victim = Placement::Victim;

std::vector<Destination> destinations(const Victim& victim,
                                      const Placement::Costs& costs = Placement::Costs{}) {
  const Placement::Destinations to = Placement::destinations(victim, costs);
  return {to.begin(), to.end()};
}

using To = std::vector<Destination>;

TEST(Placement, bytes_are_elsewhere_then_the_frame_is_released) {
  EXPECT_EQ(destinations({}), To{Destination::released}) << "a slot has them";
  EXPECT_EQ(destinations({.dirty = true, .elsewhere = true}), To{Destination::released});
  EXPECT_EQ(destinations({.way_out = false}), To{Destination::released});
}

TEST(Placement, host_has_the_only_copy_then_a_slot_receives_it) {
  EXPECT_EQ(destinations({.dirty = true, .writable = true}), To{Destination::slot});
  EXPECT_EQ(destinations({.dirty = true, .droppable = true, .writable = true}),
            To{Destination::slot});
}

TEST(Placement, no_slot_tier_takes_the_only_copy_then_it_stays_unless_it_is_droppable) {
  EXPECT_EQ(destinations({.dirty = true}), To{});
  EXPECT_EQ(destinations({.dirty = true, .droppable = true}), To{Destination::dropped});
}

TEST(Placement, device_has_the_only_copy_then_the_host_comes_before_a_slot) {
  const To host_first{Destination::memory, Destination::slot};
  EXPECT_EQ(destinations({.dirty = true, .on_device = true, .writable = true}), host_first);
  EXPECT_EQ(destinations({.dirty = true, .on_device = true}), To{Destination::memory});
  const To or_dropped{Destination::memory, Destination::dropped};
  EXPECT_EQ(destinations({.dirty = true, .droppable = true, .on_device = true}), or_dropped);
}

TEST(Placement, request_asks_for_a_write_then_the_host_is_no_destination) {
  EXPECT_EQ(destinations({.dirty = true, .on_device = true, .writable = true, .asked = true}),
            To{Destination::slot});
}

TEST(Placement, slot_is_cheaper_than_the_host_then_it_comes_first) {
  const Victim victim{.dirty = true, .on_device = true, .writable = true};
  const Placement::Costs costs{.memory = {.ns = 20, .rank = 1}, .slot = {.ns = 10, .rank = 2}};
  const To slot_first{Destination::slot, Destination::memory};
  EXPECT_EQ(destinations(victim, costs), slot_first);
}

TEST(Placement, droppable_bytes_have_another_destination_then_dropping_is_the_last) {
  const Placement::Costs costs{.memory = {.ns = 20, .rank = 1}, .slot = {.ns = 10, .rank = 2}};
  const To dropped_last{Destination::memory, Destination::dropped};
  EXPECT_EQ(destinations({.dirty = true, .droppable = true, .on_device = true}, costs),
            dropped_last);
}

Victim any_victim() {
  Victim victim;
  for (bool* fact : {&victim.dirty, &victim.elsewhere, &victim.droppable, &victim.on_device,
                     &victim.way_out, &victim.writable, &victim.has_room, &victim.asked}) {
    *fact = *rc::gen::arbitrary<bool>();
  }
  return victim;
}

RC_GTEST_PROP(Placement, only_copy_is_dropped_only_if_the_program_can_make_it_again, ()) {
  const Victim victim = any_victim();
  for (const Destination to : destinations(victim)) {
    RC_ASSERT(to != Destination::dropped || (victim.droppable && !victim.writable));
    RC_ASSERT(to != Destination::released || !victim.only_copy());
    RC_ASSERT(to != Destination::memory || victim.on_device);
  }
}

// A chosen victim that stays would be chosen again and again.
RC_GTEST_PROP(Placement, extent_can_leave_and_its_way_is_open_then_it_has_a_destination, ()) {
  Victim victim = any_victim();
  victim.asked = false;
  victim.has_room = victim.has_room && victim.on_device;
  RC_PRE(victim.way_out && Placement::can_leave(victim));
  RC_ASSERT(!destinations(victim).empty());
}

TEST(Cost, is_latency_and_bytes_by_rate_and_wear) {
  EXPECT_EQ(cost_ns(1 << 20, {}), 0) << "nothing is measured";
  EXPECT_EQ(cost_ns(2'000'000, {.bytes_per_s = 1'000'000'000, .latency_ns = 70'000}), 2'070'000);
  EXPECT_EQ(cost_ns(1'000, {.bytes_per_s = 1'000'000'000, .wear_ns_per_byte = 0.5}), 1'500);
}

TEST(Placement, the_cheapest_open_slot_tier_gets_the_bytes_and_a_slot_of_their_own_comes_first) {
  using Offer = Placement::Offer;
  const Offer fast{.open = true, .cost = {.ns = 10, .rank = 0}};
  const Offer slow{.open = true, .cost = {.ns = 20, .rank = 1}};
  const Offer equal{.open = true, .cost = {.ns = 10, .rank = 3}};
  const auto cheapest = [](std::vector<Offer> offers) { return Placement::cheapest(offers); };
  const auto closed = [](Offer offer) {
    offer.open = false;
    return offer;
  };
  const auto own = [](Offer offer) {
    offer.own = true;
    return offer;
  };
  EXPECT_EQ(cheapest({fast, slow}), 0u);
  EXPECT_EQ(cheapest({slow, fast}), 1u);
  EXPECT_EQ(cheapest({closed(fast), slow}), 1u);
  EXPECT_EQ(cheapest({fast, own(slow)}), 1u) << "few of its bytes may have changed";
  EXPECT_EQ(cheapest({fast, closed(own(slow))}), 0u);
  EXPECT_EQ(cheapest({closed(fast), closed(slow)}), Placement::kNone);
  EXPECT_EQ(cheapest({}), Placement::kNone);
  EXPECT_EQ(cheapest({equal, fast}), 1u) << "the lower rank";
}

TEST(Cost, times_are_equal_then_the_lower_rank_is_cheaper) {
  EXPECT_LT((Cost{.ns = 5, .rank = 1}), (Cost{.ns = 5, .rank = 2}));
  EXPECT_LT((Cost{.ns = 4, .rank = 2}), (Cost{.ns = 5, .rank = 1}));
}

using Pressure = Placement::Pressure;

unsigned memory(std::uint64_t bytes, const std::vector<Pressure>& memories,
                unsigned preferred = 0) {
  return Placement::memory(bytes, memories, preferred);
}

TEST(Placement, several_memories_have_room_then_the_lowest_rank_receives) {
  EXPECT_EQ(memory(4, {{.budget = 8}, {.budget = 8}}), 0u);
  EXPECT_EQ(memory(4, {{.budget = 8, .in_use = 5}, {.budget = 8}, {.budget = 8}}), 1u);
}

TEST(Placement, no_memory_has_room_then_room_is_made_in_the_lowest_rank) {
  const std::vector<Pressure> full{{.budget = 8, .in_use = 8}, {.budget = 8, .in_use = 8}};
  EXPECT_EQ(memory(4, full), 0u);
}

TEST(Placement, everything_in_one_memory_is_pinned_then_the_other_one_is_taken) {
  const Pressure pinned{.budget = 8, .in_use = 8, .stuck = true};
  EXPECT_EQ(memory(4, {pinned, {.budget = 8, .in_use = 8}}), 1u);
  EXPECT_EQ(memory(4, {pinned, {.budget = 8}}), 1u);
  EXPECT_EQ(memory(4, {pinned, pinned}), 0u);
}

TEST(Placement, extent_is_larger_than_a_memory_then_that_memory_is_skipped) {
  EXPECT_EQ(memory(16, {{.budget = 8}, {.budget = 32, .in_use = 32}}), 1u);
  EXPECT_EQ(memory(64, {{.budget = 8}, {.budget = 32}}), Placement::kNone);
}

TEST(Placement, memory_is_closed_then_it_receives_nothing) {
  EXPECT_EQ(memory(4, {{.budget = 8, .closed = true}, {.budget = 8}}), 1u);
  EXPECT_EQ(memory(4, {{.budget = 8, .closed = true}}), Placement::kNone);
}

TEST(Placement, extent_prefers_a_memory_then_that_one_is_first_and_the_others_follow_by_rank) {
  const Pressure empty{.budget = 8}, full{.budget = 8, .in_use = 8};
  EXPECT_EQ(memory(4, {empty, empty, empty}, 2), 2u);
  EXPECT_EQ(memory(4, {empty, full, empty}, 1), 0u) << "another memory has room";
  EXPECT_EQ(memory(4, {full, full, empty}, 1), 2u);
  EXPECT_EQ(memory(4, {full, full, full}, 1), 1u) << "room is made there first";
}

TEST(Placement, preferred_memory_refuses_the_extent_then_the_usual_order_applies) {
  const Pressure full{.budget = 8, .in_use = 8}, pinned{.budget = 8, .in_use = 8, .stuck = true};
  EXPECT_EQ(memory(4, {full, pinned, full}, 1), 0u);
  EXPECT_EQ(memory(4, {full, full, {.budget = 8, .closed = true}}, 2), 0u);
  EXPECT_EQ(memory(8, {full, full, {.budget = 4}}, 2), 0u) << "it is too small";
  EXPECT_EQ(memory(4, {pinned, pinned, pinned}, 1), 1u) << "it can have such an extent at all";
}

RC_GTEST_PROP(Placement, order_of_memories_has_each_rank_once_and_begins_with_the_preferred_one,
              ()) {
  const auto count = *rc::gen::inRange(1u, 9u);
  const auto preferred = *rc::gen::inRange(0u, count);
  std::vector<unsigned> ranks;
  for (unsigned position = 0; position < count; ++position) {
    ranks.push_back(Placement::in_order(position, preferred));
  }
  RC_ASSERT(ranks.front() == preferred);
  RC_ASSERT(std::is_sorted(ranks.begin() + 1, ranks.end()));
  std::sort(ranks.begin(), ranks.end());
  for (unsigned rank = 0; rank < count; ++rank) {
    RC_ASSERT(ranks[rank] == rank);
  }
}

TEST(Placement, victim_can_relocate_then_the_next_memory_comes_first) {
  const To memory_first{Destination::memory, Destination::slot};
  EXPECT_EQ(destinations({.dirty = true, .relocates = true, .writable = true}), memory_first);
  const To or_released{Destination::memory, Destination::released};
  EXPECT_EQ(destinations({.relocates = true}), or_released) << "a slot has the bytes, too";
  EXPECT_EQ(destinations({.relocates = true, .spent = true}), To{Destination::released});
  EXPECT_EQ(destinations({.elsewhere = true, .relocates = true}), To{Destination::released});
  EXPECT_EQ(destinations({.dirty = true, .relocates = true, .writable = true, .asked = true}),
            To{Destination::slot});
}

TEST(Placement, victim_can_relocate_then_it_needs_room_in_a_memory_or_a_slot) {
  EXPECT_FALSE(Placement::can_leave({.dirty = true, .relocates = true}));
  EXPECT_TRUE(Placement::can_leave({.dirty = true, .relocates = true, .has_room = true}));
  EXPECT_TRUE(Placement::can_leave({.dirty = true, .relocates = true, .writable = true}));
}

}  // namespace
}  // namespace tiermem

// Room in a slot tier: allocation, growth, budgets, devices to avoid, and degraded devices. A tier
// that allocates nothing refuses all of this.
#include "contract/slot_contract.hpp"

namespace tiermem::contract {
namespace {

TEST_P(SlotContract, new_tier_has_its_budget_and_no_slots) {
  EXPECT_EQ(usage().budget, facts().budget);
  EXPECT_EQ(usage().in_use, 0U);
  EXPECT_EQ(usage().physical, 0U);
  EXPECT_EQ(tier().degraded(), 0U);
  EXPECT_GE(tier().depth(), 1U);
  EXPECT_EQ(tier().place().kind, facts().compresses ? Kind::compressed
                                 : allocates()      ? Kind::block
                                                    : Kind::file);
  EXPECT_EQ(tier().compresses(), facts().compresses);
  EXPECT_FALSE(tier().pending());
  SlotCompletion none;
  EXPECT_EQ(tier().reap({&none, 1}), 0U);
}

TEST_P(ReadOnlySlots, tier_that_allocates_nothing_refuses_and_charges_nothing) {
  EXPECT_EQ(tier().allocate(largest(), 0).code(), Code::unsupported);
  EXPECT_EQ(tier().grow(largest()).code(), Code::unsupported);
  tier().set_budget(largest());
  EXPECT_EQ(tier().allocate(largest(), 0).code(), Code::unsupported);
  for (const auto& known : subject().known()) {
    EXPECT_EQ(tier().bytes_of(known.slot), 0U);
    EXPECT_NE(tier().device_name(tier().device_of(known.slot)), nullptr);
    tier().degrade(tier().device_of(known.slot), "it failed");
  }
  EXPECT_EQ(tier().degraded(), 0U) << "a file that fails is read again";
  tier().trust_again();
  EXPECT_EQ(usage().in_use, 0U);
  EXPECT_EQ(usage().physical, 0U);
}

TEST_P(WritableSlots, slot_is_allocated_then_it_is_charged_until_it_is_freed) {
  std::uint64_t in_use = 0;
  std::vector<SlotId> slots;
  for (const std::uint64_t bytes : facts().sizes) {
    slots.push_back(allocate(bytes));
    in_use += bytes;
    EXPECT_EQ(tier().bytes_of(slots.back()), bytes);
    EXPECT_EQ(usage().in_use, in_use);
    EXPECT_GE(usage().physical, in_use) << "room is preallocated";
    EXPECT_LE(usage().physical, usage().budget);
    EXPECT_LT(tier().device_of(slots.back()), facts().devices);
    EXPECT_NE(tier().device_name(tier().device_of(slots.back())), nullptr);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    free(slots[i]);
    in_use -= facts().sizes[i];
    EXPECT_EQ(usage().in_use, in_use);
  }
  EXPECT_TRUE(subject().consistent());
}

TEST_P(WritableSlots, tier_is_busy_then_grow_makes_room_for_the_next_allocation) {
  ASSERT_EQ(tier().allocate(smallest(), 0).code(), Code::busy) << "no room is preallocated yet";
  EXPECT_EQ(usage().in_use, 0U) << "a refusal charges nothing";
  ASSERT_TRUE(tier().grow(smallest()).ok());
  const std::uint64_t physical = usage().physical;
  EXPECT_GE(physical, smallest());
  EXPECT_LE(physical, usage().budget);
  const SlotId slot = allocate(smallest());
  EXPECT_EQ(usage().physical, physical) << "an allocation grows nothing";
  free(slot);
  EXPECT_EQ(usage().physical, physical) << "files never shrink";
}

TEST_P(WritableSlots, budget_is_full_then_no_slot_is_allocated_until_one_is_freed) {
  for (const std::uint64_t bytes : {largest(), smallest()}) {
    std::vector<SlotId> slots;
    for (;;) {
      auto slot = try_allocate(bytes);
      if (!slot.ok()) {
        EXPECT_EQ(slot.code(), Code::no_capacity);
        break;
      }
      slots.push_back(*slot);
      ASSERT_LE(usage().in_use, usage().physical);
      ASSERT_LE(usage().physical, usage().budget);
    }
    EXPECT_EQ(slots.size() * bytes, facts().budget) << "all of the budget is of use";
    EXPECT_EQ(usage().in_use, facts().budget);
    EXPECT_EQ(tier().grow(bytes).code(), Code::no_capacity);
    EXPECT_EQ(tier().allocate(bytes, 0).code(), Code::no_capacity);
    free(slots.back());
    EXPECT_TRUE(try_allocate(bytes).ok());
    free_all();
    EXPECT_EQ(usage().in_use, 0U);
  }
  EXPECT_TRUE(subject().consistent());
}

TEST_P(WritableSlots, slots_of_one_size_are_freed_then_their_room_serves_every_other_size) {
  for (const std::uint64_t first : facts().sizes) {
    for (const std::uint64_t second : facts().sizes) {
      for (const std::uint64_t bytes : {first, second}) {
        for (std::uint64_t used = 0; used < facts().budget; used += bytes) {
          ASSERT_TRUE(try_allocate(bytes).ok()) << first << " bytes, then " << second;
        }
        ASSERT_EQ(usage().in_use, facts().budget);
        free_all();
      }
    }
  }
}

TEST_P(WritableSlots, budget_is_lowered_then_no_slot_exceeds_it_until_it_is_raised) {
  const SlotId first = allocate(largest()), second = allocate(largest());
  tier().set_budget(largest());
  EXPECT_EQ(usage().budget, largest());
  EXPECT_EQ(usage().in_use, 2 * largest()) << "a budget takes no slot away";
  EXPECT_EQ(try_allocate(largest()).code(), Code::no_capacity);
  free(first);
  EXPECT_EQ(try_allocate(largest()).code(), Code::no_capacity);
  free(second);
  EXPECT_TRUE(try_allocate(largest()).ok());
  EXPECT_EQ(try_allocate(smallest()).code(), Code::no_capacity);
  tier().set_budget(facts().budget);
  EXPECT_TRUE(try_allocate(largest()).ok());
}

TEST_P(WritableSlots, devices_are_avoided_then_no_slot_is_on_them) {
  for (unsigned d = 0; d < facts().devices; ++d) {
    const std::uint64_t others = ~(std::uint64_t{1} << d);
    for (int i = 0; i < 4; ++i) {
      auto slot = try_allocate(smallest(), others);
      ASSERT_TRUE(slot.ok()) << slot.message();
      EXPECT_EQ(tier().device_of(*slot), d);
    }
  }
  EXPECT_EQ(tier().allocate(smallest(), ~std::uint64_t{0}).code(), Code::no_capacity);
}

TEST_P(WritableSlots, device_is_degraded_then_it_gets_no_slots_until_it_is_trusted_again) {
  const SlotId before = allocate(largest());
  const Block bytes = pattern(largest(), 1);
  ASSERT_EQ(write(before, bytes), Code::ok);
  const std::uint16_t device = tier().device_of(before);
  tier().degrade(device, "it failed");
  EXPECT_EQ(tier().degraded(), 1U);
  for (int i = 0; i < 4; ++i) {
    auto slot = try_allocate(smallest());
    EXPECT_EQ(slot.ok(), facts().devices > 1);
    EXPECT_TRUE(!slot.ok() || tier().device_of(*slot) != device);
  }
  EXPECT_TRUE(holds(before, bytes)) << "its slots are read";
  EXPECT_EQ(write(before, pattern(largest(), 2)), Code::ok) << "and written";
  tier().trust_again();
  EXPECT_EQ(tier().degraded(), 0U);
  auto slot = try_allocate(smallest(), ~(std::uint64_t{1} << device));
  ASSERT_TRUE(slot.ok()) << slot.message();
  EXPECT_EQ(tier().device_of(*slot), device);
}

TEST_P(WritableSlots, bytes_went_past_the_tier_then_the_slots_and_books_are_the_same) {
  const SlotId slot = allocate(largest());
  ASSERT_EQ(write(slot, pattern(largest(), 1)), Code::ok);
  const SlotUsage before = usage();
  tier().went_past(slot, largest(), true);
  tier().went_past(slot, largest(), false);
  EXPECT_EQ(usage().in_use, before.in_use);
  EXPECT_EQ(usage().physical, before.physical);
  EXPECT_TRUE(holds(slot, pattern(largest(), 1)));
  SlotCompletion none;
  EXPECT_EQ(tier().reap({&none, 1}), 0U);
}

}  // namespace
}  // namespace tiermem::contract

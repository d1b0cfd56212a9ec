// The ledger of a slot tier: growth, wear, devices that fail, pauses of writes and slots that
// children of fork read. The tier only notes what it is told.
#include "mover/slot_ledger.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/unit/mover_doubles.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kPage = kSmallestExtent;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kDay = 86'400 * kSecond;

class NotingTier final : public SlotTier {
 public:
  Place place() const override { return {Kind::block, 0}; }
  Result<SlotId> allocate(std::uint64_t, std::uint64_t) override {
    if (code != Code::ok) {
      return Status(code);
    }
    return SlotId{++allocated};
  }
  void free(SlotId slot) override { freed.push_back(slot.value); }
  SlotUsage usage() const override { return {budget, in_use, in_use}; }
  void set_budget(std::uint64_t bytes) override { budget = bytes; }
  Status grow(std::uint64_t) override { return {}; }
  unsigned depth() const override { return 8; }
  std::uint16_t device_of(SlotId slot) const override {
    return static_cast<std::uint16_t>(slot.value);
  }
  const char* device_name(std::uint16_t) const override { return ""; }
  void degrade(std::uint16_t device, const char* why) override {
    degraded_devices.push_back(device);
    reason = why;
  }
  void trust_again() override { degraded_devices.clear(); }
  unsigned degraded() const override { return static_cast<unsigned>(degraded_devices.size()); }
  void submit(const SlotTransfer&) override {}
  void went_past(SlotId, std::uint64_t, bool) override { ++past; }
  std::size_t reap(std::span<SlotCompletion>) override { return 0; }

  Code code = Code::ok;
  std::uint64_t allocated = 0, budget = 0, in_use = 0;
  unsigned past = 0;
  std::vector<std::uint64_t> freed;
  std::vector<std::uint16_t> degraded_devices;
  std::string reason;
};

struct SlotLedgerTest : ::testing::Test {
  using Freed = std::vector<std::uint64_t>;
  NotingTier tier;
  HeldWorkers workers;
};

TEST_F(SlotLedgerTest, one_job_grows_the_tier_for_all_transfers_that_wait) {
  SlotLedger ledger(&tier, workers, {});
  ledger.grow(3, kPage);
  ledger.grow(5, 2 * kPage);
  ASSERT_EQ(workers.jobs.size(), 1u);
  EXPECT_EQ(workers.jobs[0]->steps, kGrow);
  EXPECT_EQ(workers.jobs[0]->bytes, kPage);
  EXPECT_EQ(ledger.jobs(), 1u);
  EXPECT_FALSE(ledger.job_done(Job{})) << "another job";
  EXPECT_TRUE(ledger.job_done(*workers.jobs[0]));
  EXPECT_EQ(ledger.jobs(), 0u);
  EXPECT_NE(ledger.check(), "") << "they wait without a job";
  EXPECT_EQ(ledger.take_grown(), (Deque<std::uint32_t>{3, 5}));
  EXPECT_EQ(ledger.check(), "");
  ledger.grow(7, kPage);
  EXPECT_EQ(workers.jobs.size(), 2u);
}

TEST_F(SlotLedgerTest, devices_have_less_room_than_the_budget_then_a_refusal_shows_how_much) {
  SlotLedger ledger(&tier, workers, {});
  tier.budget = 9 * kPage;
  EXPECT_EQ(ledger.room(), 9 * kPage);
  tier.in_use = 4 * kPage;
  ledger.pause(0, false);
  EXPECT_EQ(ledger.room(), 9 * kPage) << "another failure";
  ledger.pause(0, true);
  EXPECT_EQ(ledger.room(), 4 * kPage);
  EXPECT_TRUE(ledger.waits_for_slots(0));
  EXPECT_FALSE(ledger.waits_for_slots(ledger.paused_until()));
  tier.in_use = 3 * kPage;
  EXPECT_TRUE(ledger.allocate(kPage, 0).ok());
  EXPECT_EQ(ledger.room(), 4 * kPage) << "a slot that was free";
  tier.in_use = 5 * kPage;
  EXPECT_TRUE(ledger.allocate(kPage, 0).ok());
  EXPECT_EQ(ledger.room(), 9 * kPage) << "the devices have more";
  ledger.pause(0, true);
  ledger.set_budget(7 * kPage);
  EXPECT_EQ(ledger.room(), 7 * kPage);
}

TEST_F(SlotLedgerTest, a_slot_that_is_freed_under_a_read_is_free_at_its_end) {
  SlotLedger ledger(&tier, workers, {});
  ledger.begin_read({4});
  ledger.free({5});
  EXPECT_EQ(tier.freed, Freed{5}) << "no read of it is in progress";
  ledger.give_up({4}, ledger.stamp());
  EXPECT_EQ(tier.freed, Freed{5});
  EXPECT_TRUE(ledger.end_read({4}));
  EXPECT_EQ(tier.freed, (Freed{5, 4}));
  ledger.begin_read({4});
  EXPECT_FALSE(ledger.end_read({4}));
  EXPECT_EQ(tier.freed, (Freed{5, 4})) << "its extent has it";
}

TEST_F(SlotLedgerTest, two_reads_of_one_slot_free_it_once) {
  for (const bool freed_first : {true, false}) {
    tier.freed.clear();
    SlotLedger ledger(&tier, workers, {});
    ledger.begin_read({4});
    if (freed_first) {
      ledger.free({4});
    }
    ledger.begin_read({4});
    if (!freed_first) {
      ledger.free({4});
    }
    EXPECT_FALSE(ledger.end_read({4}));
    EXPECT_EQ(tier.freed, Freed{});
    EXPECT_TRUE(ledger.end_read({4}));
    EXPECT_EQ(tier.freed, Freed{4});
  }
}

TEST_F(SlotLedgerTest, the_slot_of_a_child_that_ended_under_a_read_is_free_at_its_end) {
  SlotLedger ledger(&tier, workers, {});
  const std::uint32_t stamp = ledger.stamp();
  const std::uint32_t child = ledger.parent_of_child();
  ledger.begin_read({4});
  ledger.give_up({4}, stamp);
  ledger.child_ended(child);
  EXPECT_EQ(tier.freed, Freed{});
  EXPECT_TRUE(ledger.end_read({4}));
  EXPECT_EQ(tier.freed, Freed{4});
}

TEST_F(SlotLedgerTest, without_a_limit_of_wear_every_write_may_begin) {
  SlotLedger ledger(&tier, workers, {});
  EXPECT_TRUE(ledger.may_wear(std::uint64_t{1} << 60, 0));
  EXPECT_EQ(ledger.next(0), kNever);
}

TEST_F(SlotLedgerTest, the_endurance_of_a_day_is_spent_at_once_and_comes_back_evenly) {
  SlotLedger ledger(&tier, workers, {.endurance_bytes_per_day = 4 * kPage});
  EXPECT_TRUE(ledger.may_wear(3 * kPage, 0));
  EXPECT_FALSE(ledger.may_wear(2 * kPage, 0));
  EXPECT_EQ(ledger.last_error().code, Code::no_capacity);
  EXPECT_STREQ(ledger.last_error().setting, "endurance");
  EXPECT_EQ(ledger.next(0), kDay / 4) << "one page more";
  EXPECT_FALSE(ledger.can_write(0, false));
  EXPECT_TRUE(ledger.can_write(0, true)) << "the caller asks for its own slot again";
  EXPECT_FALSE(ledger.tries_again(0)) << "no request waits for a day";
  EXPECT_TRUE(ledger.may_wear(2 * kPage, kDay / 4));
  ledger.return_wear(2 * kPage);
  EXPECT_TRUE(ledger.may_wear(2 * kPage, kDay / 4)) << "the write did not happen";
  EXPECT_TRUE(ledger.may_wear(9 * kPage, 10 * kDay)) << "larger than a day's endurance";
}

TEST_F(SlotLedgerTest, three_failed_writes_in_a_row_degrade_a_device) {
  SlotLedger ledger(&tier, workers, {.degraded_ns = kSecond});
  ledger.write_failed(2, "refused", 0);
  ledger.write_failed(2, "refused", 0);
  ledger.write_worked({2});
  ledger.write_failed(2, "refused", 0);
  ledger.write_failed(2, "refused", 0);
  EXPECT_TRUE(tier.degraded_devices.empty()) << "one write between them has worked";
  ledger.write_failed(1, "another", 0);
  ledger.write_failed(2, "refused", 0);
  ASSERT_EQ(tier.degraded_devices, std::vector<std::uint16_t>{2});
  EXPECT_EQ(tier.reason, "refused");
}

TEST_F(SlotLedgerTest,
       a_degraded_device_is_tried_again_after_its_backoff_and_one_failure_is_enough) {
  SlotLedger ledger(&tier, workers, {.degraded_ns = kSecond});
  for (int i = 0; i < 3; ++i) {
    ledger.write_failed(2, "refused", 0);
  }
  ledger.retry_degraded(kSecond - 1);
  EXPECT_EQ(tier.degraded(), 1u);
  ledger.retry_degraded(kSecond);
  EXPECT_EQ(tier.degraded(), 0u);
  ledger.write_failed(2, "refused", kSecond);
  EXPECT_EQ(tier.degraded(), 1u);
  ledger.retry_degraded(2 * kSecond);
  EXPECT_EQ(tier.degraded(), 1u) << "the backoff doubles";
  ledger.retry_degraded(3 * kSecond);
  EXPECT_EQ(tier.degraded(), 0u);
}

TEST_F(SlotLedgerTest, a_pause_for_want_of_slots_lets_extents_with_slots_be_written) {
  SlotLedger ledger(&tier, workers, {});
  EXPECT_TRUE(ledger.can_write(0, false));
  ledger.pause(0, false);
  EXPECT_FALSE(ledger.can_write(0, true));
  EXPECT_TRUE(ledger.tries_again(0));
  EXPECT_EQ(ledger.next(0), ledger.paused_until());
  ledger.note_error(error_info(Code::no_capacity, "full"));
  ledger.pause(0, true);
  EXPECT_TRUE(ledger.can_write(0, true));
  EXPECT_FALSE(ledger.can_write(0, false));
  EXPECT_FALSE(ledger.tries_again(0));
  EXPECT_TRUE(ledger.slots_came());
  EXPECT_TRUE(ledger.can_write(0, false));
}

TEST_F(SlotLedgerTest, an_error_is_kept_while_writes_are_paused) {
  SlotLedger ledger(&tier, workers, {});
  ledger.note_error(error_info(Code::io_error, "refused"));
  ledger.pause(0, false);
  ledger.forget_error(0);
  EXPECT_EQ(ledger.last_error().code, Code::io_error);
  EXPECT_FALSE(ledger.slots_came()) << "slots were not lacking";
  ledger.forget_error(ledger.paused_until());
  EXPECT_EQ(ledger.last_error().code, Code::ok);
}

TEST_F(SlotLedgerTest, a_new_budget_ends_the_pause) {
  SlotLedger ledger(&tier, workers, {});
  ledger.note_error(error_info(Code::no_capacity, "full"));
  ledger.pause(0, true);
  ledger.set_budget(kPage);
  EXPECT_EQ(tier.budget, kPage);
  EXPECT_FALSE(ledger.paused(0));
  EXPECT_EQ(ledger.last_error().code, Code::ok);
}

TEST_F(SlotLedgerTest, a_slot_that_a_child_reads_is_freed_when_the_child_ends) {
  SlotLedger ledger(&tier, workers, {});
  const std::uint32_t stamp = ledger.stamp();
  const std::uint32_t child = ledger.parent_of_child();
  EXPECT_TRUE(ledger.is_shared(stamp));
  ledger.give_up({4}, stamp);
  ledger.give_up({5}, ledger.stamp());
  EXPECT_EQ(tier.freed, Freed{5});
  EXPECT_EQ(ledger.check(), "");
  ledger.child_ended(child);
  EXPECT_EQ(tier.freed, (Freed{5, 4}));
}

TEST_F(SlotLedgerTest, a_tier_is_full_if_no_slot_can_be_had) {
  SlotLedger ledger(&tier, workers, {});
  EXPECT_FALSE(ledger.is_full(kPage, 0));
  EXPECT_EQ(tier.freed.size(), 1u) << "the slot was for the question only";
  tier.code = Code::busy;
  EXPECT_FALSE(ledger.is_full(kPage, 0)) << "it grows";
  tier.code = Code::no_capacity;
  EXPECT_TRUE(ledger.is_full(kPage, 0));
}

TEST_F(SlotLedgerTest, all_extents_are_looked_at_before_the_search_for_slots_pauses) {
  SlotLedger ledger(&tier, workers, {});
  EXPECT_EQ(ledger.next_to_give_way(3), 1u);
  EXPECT_EQ(ledger.next_to_give_way(3), 2u);
  EXPECT_EQ(ledger.next_to_give_way(3), 0u);
  EXPECT_TRUE(ledger.looks_for_slots(0));
  ledger.none_gives_way(0, 3);
  EXPECT_FALSE(ledger.looks_for_slots(1'000'299));
  EXPECT_TRUE(ledger.looks_for_slots(1'000'300));
}

TEST_F(SlotLedgerTest, the_direct_path_is_left_alone_after_a_failure) {
  SlotLedger ledger(&tier, workers, {});
  EXPECT_TRUE(ledger.tries_direct(0));
  ledger.direct_failed(0);
  EXPECT_FALSE(ledger.tries_direct(kSecond - 1));
  EXPECT_TRUE(ledger.tries_direct(kSecond));
  ledger.direct_worked({1}, kPage, true);
  EXPECT_EQ(tier.past, 1u);
}

}  // namespace
}  // namespace tiermem

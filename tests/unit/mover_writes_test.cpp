// Writes to slots, step by step: which extents are written, the effect of errors, how long the
// mover leaves a device alone afterwards, and which slots are free again.
#include <gtest/gtest.h>

#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

// Returns the device of the oldest request in progress.
std::uint16_t device_of_oldest(const M& m) {
  return m.port.requests.at(0).device;
}

// Ends writes with an error until the mover starts no more. Returns their number.
unsigned refuse_writes(M& m) {
  unsigned refused = 0;
  m.run_workers();
  for (; !m.port.requests.empty(); ++refused) {
    EXPECT_TRUE(m.port.requests[0].write);
    m.end_io(EIO);
  }
  return refused;
}

// ---- Writes

TEST(MoverWrites, both_the_write_and_its_checksums_must_be_ready) {
  for (const bool hash_first : {true, false}) {
    M m;
    const Handle x = m.buffer();
    m.write(x, 0x11);
    const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
    ASSERT_EQ(m.workers.waiting(kGrow), 1u);
    m.workers.run();
    m.settle();
    ASSERT_EQ(m.workers.waiting(kHash), 1u);
    ASSERT_EQ(m.port.requests.size(), 1u);
    hash_first ? m.workers.run() : m.port.end();
    m.settle();
    EXPECT_FALSE(evict.done());
    EXPECT_TRUE(m.resident(x));
    EXPECT_TRUE(m.extent(x).copy().partial());
    hash_first ? m.port.end() : m.workers.run();
    m.settle();
    EXPECT_EQ(evict.code(), Code::ok);
    EXPECT_FALSE(m.resident(x));
    EXPECT_FALSE(m.extent(x).copy().partial());
    EXPECT_EQ(m.value(x), 0x11);
  }
}

TEST(MoverWrites, only_the_blocks_that_have_changed_are_written_again) {
  M m;
  const Handle x = m.cold(0x11);
  Call& view = m.acquire(x, kWrite);
  m.end_all();
  for (const std::uint64_t page : {1, 2}) {
    view.data()[page * kSmallestExtent] = std::byte{0x22};
  }
  m.release(view);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  EXPECT_EQ(m.port.requests[0].length, 2 * kSmallestExtent);
  EXPECT_EQ(m.port.requests[0].offset % M::kExtent, kSmallestExtent);
  EXPECT_TRUE(m.extent(x).copy().partial());
  m.end_all();
  EXPECT_EQ(evict.code(), Code::ok);

  Call& same = m.acquire(x, kWrite);
  m.end_all();
  same.data()[kSmallestExtent] = std::byte{0x22};
  m.release(same);
  const std::uint64_t writes = m.port.writes;
  m.evict(x);
  EXPECT_EQ(m.port.writes, writes) << "nothing has changed";
  EXPECT_EQ(m.stats().demoted, M::kExtent + 2 * kSmallestExtent);
}

TEST(MoverWrites, what_is_written_while_it_is_written_down_stays_and_is_written_again) {
  M m;
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const Call& clean = m.ask(RequestKind::clean, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  Call& writer = m.acquire(x, kWrite);
  ASSERT_EQ(writer.code(), Code::ok);
  m.port.end();  // The device has the bytes from before the write.
  std::memset(writer.data(), 0x22, M::kExtent);
  m.release(writer);
  m.end_all();
  EXPECT_EQ(clean.code(), Code::ok);
  EXPECT_EQ(m.port.writes, 2u);
  EXPECT_TRUE(m.resident(x));
  EXPECT_FALSE(m.bits(x).dirty());
  m.evict(x);
  EXPECT_EQ(m.port.writes, 2u);
  EXPECT_EQ(m.value(x), 0x22);
}

TEST(MoverWrites, clean_keeps_the_frame_and_a_clean_extent_leaves_without_a_write) {
  M m;
  const Handle x = m.buffer();
  m.write(x, 0x11);
  EXPECT_FALSE(m.ask(RequestKind::clean, {M::access(x, kRead)}).done());
  m.end_all();
  EXPECT_TRUE(m.resident(x));
  EXPECT_FALSE(m.bits(x).dirty());
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.stats().evicted_clean, M::kExtent);
  EXPECT_EQ(m.value(x), 0x11);
}

// ---- Errors of writes

TEST(MoverWrites, a_write_that_fails_is_made_on_another_device_and_its_slot_is_given_back) {
  M m({.disks = 2});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  const std::uint16_t first = device_of_oldest(m);
  m.end_io(EIO);
  EXPECT_FALSE(evict.done());
  ASSERT_EQ(m.port.requests.size(), 1u);
  EXPECT_NE(device_of_oldest(m), first);
  m.end_io();
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.stats().io_retries, 1u);
  EXPECT_EQ(m.block.usage().in_use, M::kExtent);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverWrites, after_three_tries_the_error_is_told_and_the_bytes_stay) {
  M m({.disks = 2});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(refuse_writes(m), 3u);
  EXPECT_EQ(evict.code(), Code::io_error);
  ASSERT_NE(evict.request.status.info(), nullptr);
  EXPECT_EQ(evict.request.status.info()->native, EIO);
  EXPECT_TRUE(m.resident(x));
  EXPECT_TRUE(m.bits(x).dirty());
  EXPECT_EQ(m.block.usage().in_use, 0u);
  EXPECT_EQ(m.stats().io_errors, 1u);
  EXPECT_EQ(m.value(x), 0x11);
}

// The pause is ten milliseconds, then twenty, and ten again after a successful write.
TEST(MoverWrites, after_a_failed_write_nothing_is_written_for_a_while_and_longer_each_time) {
  M m({.frames = 1, .disks = 8});
  const Handle x = m.buffer(), y = m.buffer();
  m.write(x, 0x11);
  const Call& call = m.acquire(y, kWrite);
  for (const std::int64_t pause : {10, 20}) {
    EXPECT_EQ(refuse_writes(m), 3u);
    EXPECT_FALSE(call.done());
    ASSERT_EQ(m.next, m.now + pause * M::kMs);
    m.at(m.next - 1);
    m.run_workers();
    EXPECT_TRUE(m.port.requests.empty());
    m.at(m.next);
  }
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok);
  std::memset(call.data(), 0x22, M::kExtent);
  ASSERT_EQ(m.residency.release(call.views), Code::ok);
  const Call& another = m.acquire(m.buffer(), kWrite);
  EXPECT_EQ(refuse_writes(m), 3u);
  EXPECT_FALSE(another.done());
  EXPECT_EQ(m.next, m.now + 10 * M::kMs);
}

TEST(MoverWrites, evict_in_the_pause_after_a_failed_write_has_its_error) {
  M m({.disks = 2});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  m.ask(RequestKind::evict, {M::access(x, kRead)});
  refuse_writes(m);
  const Call& second = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(second.code(), Code::io_error);
  EXPECT_TRUE(m.port.requests.empty());
  m.at(m.now + 10 * M::kMs);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverWrites, a_device_that_fails_three_times_in_a_row_is_given_up) {
  M m({.disks = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  for (int failures = 0; failures < 2; ++failures) {
    const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
    m.run_workers();
    m.end_io(EIO);
    m.end_io(EIO);
    m.end_io();  // A successful write after each two failures.
    EXPECT_EQ(evict.code(), Code::ok);
    EXPECT_EQ(m.stats().degraded_devices, 0u);
    m.write(x, static_cast<unsigned char>(failures + 1));  // Zeros would need no write.
  }
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(refuse_writes(m), 3u);
  EXPECT_EQ(evict.code(), Code::io_error);
  EXPECT_EQ(m.stats().degraded_devices, 1u);
  EXPECT_EQ(m.value(x), 2);
}

// After half a minute the next write tries the device again. If it fails, the device is given up at
// once for twice as long. If it succeeds, the device is as good as any other.
TEST(MoverWrites, a_device_that_was_given_up_is_tried_again_later) {
  constexpr std::int64_t kFirst = 30'000 * M::kMs;
  M m({.disks = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const auto evict = [&] { return m.ask(RequestKind::evict, {M::access(x, kRead)}).code(); };
  m.ask(RequestKind::evict, {M::access(x, kRead)});
  ASSERT_EQ(refuse_writes(m), 3u);
  ASSERT_EQ(m.stats().degraded_devices, 1u);
  m.at(m.now + kFirst - 2000 * M::kMs);
  EXPECT_EQ(evict(), Code::io_error) << "at once";
  EXPECT_TRUE(m.port.requests.empty());
  m.at(m.now + 2100 * M::kMs);  // The pause after that refusal has ended too.
  const Call& again = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  EXPECT_EQ(m.stats().degraded_devices, 0u);
  m.end_io(EIO);
  EXPECT_EQ(again.code(), Code::io_error);
  EXPECT_TRUE(m.port.requests.empty()) << "nowhere else to go";
  EXPECT_EQ(m.stats().degraded_devices, 1u);
  m.at(m.now + 2 * kFirst - 2000 * M::kMs);
  EXPECT_EQ(evict(), Code::io_error);
  m.at(m.now + 2100 * M::kMs);  // The pause after that refusal has ended too.
  m.evict(x);
  EXPECT_EQ(m.stats().degraded_devices, 0u);
  // After three more failures it is given up again, for the initial time.
  m.write(x, 0x22);
  m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(refuse_writes(m), 3u);
  EXPECT_EQ(m.stats().degraded_devices, 1u);
  m.at(m.now + kFirst + M::kMs);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x22);
}

// Eight writes that fail together count as one failure of the device.
TEST(MoverWrites, what_was_under_way_when_a_device_was_given_up_makes_the_wait_no_longer) {
  M m({.frames = 8, .disks = 1});
  const Handle x = m.buffer(8);
  m.write(x, 0x11);
  m.ask(RequestKind::evict, {M::access(x, kRead)});
  refuse_writes(m);
  ASSERT_EQ(m.stats().degraded_devices, 1u);
  m.at(m.now + 31'000 * M::kMs);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);
}

// ---- Slots

TEST(MoverWrites, those_who_wait_for_the_slots_to_grow_wait_for_one_growth) {
  M m;
  const Handle x = m.buffer(), y = m.buffer();
  m.write(x, 0x11);
  m.write(y, 0x22);
  const Call& both = m.ask(RequestKind::evict, {M::access(x, kRead), M::access(y, kRead)});
  EXPECT_EQ(m.workers.jobs.size(), 1u);
  EXPECT_EQ(m.workers.waiting(kGrow), 1u);
  m.end_all();
  EXPECT_EQ(both.code(), Code::ok);
  EXPECT_EQ(m.port.growths, 1u);
  EXPECT_EQ(m.value(x), 0x11);
  EXPECT_EQ(m.value(y), 0x22);
}

TEST(MoverWrites, growth_that_is_refused_is_told_to_all_who_wait_for_it) {
  M m;
  const Handle x = m.buffer(), y = m.buffer();
  m.write(x, 0x11);
  m.write(y, 0x22);
  m.port.refuses_growth = ENOSPC;
  const Call& first = m.ask(RequestKind::evict, {M::access(x, kRead)});
  const Call& second = m.ask(RequestKind::evict, {M::access(y, kRead)});
  m.run_workers();
  for (const Call* call : {&first, &second}) {
    EXPECT_EQ(call->code(), Code::no_capacity);
    EXPECT_SAYS(call->request.status, "disk0 is full");
  }
  EXPECT_TRUE(m.resident(x));
  EXPECT_TRUE(m.resident(y));
}

// Memory and the block tier are full. A request that was refused for lack of a slot gets one in the
// same step in which another buffer releases its slot, without waiting for the pause.
TEST(MoverWrites, a_slot_that_is_given_up_serves_who_was_refused_one_at_once) {
  M m({.frames = 2, .on_disk = 1});
  const Handle cold = m.cold(0x11);
  const Handle x = m.buffer(), y = m.buffer();
  m.write(x, 0x22);
  Call& pinned = m.acquire(y, kWrite);
  m.end_all();
  ASSERT_EQ(pinned.code(), Code::ok);
  const Call& waits = m.acquire(m.buffer(), kWrite);
  m.run_workers();
  EXPECT_FALSE(waits.done());
  EXPECT_TRUE(m.port.requests.empty());
  EXPECT_EQ(m.free(cold).code(), Code::ok);
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  m.end_io();
  EXPECT_EQ(waits.code(), Code::ok);
}

TEST(MoverWrites, a_larger_budget_of_the_block_tier_is_used_at_once) {
  M m;
  const Handle x = m.buffer();
  m.write(x, 0x11);
  EXPECT_EQ(m.set_budget(0, {Kind::block, 0}).code(), Code::ok);
  const Call& refused = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_EQ(m.set_budget(M::kExtent, {Kind::block, 0}).code(), Code::ok);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverWrites, without_a_block_tier_its_budget_is_nothing_to_set) {
  M m({.disks = 0});
  EXPECT_EQ(m.set_budget(M::kExtent, {Kind::block, 0}).code(), Code::unavailable);
}

// A day's budget may be written at once; the budget then returns evenly. An extent that turns out
// to be unchanged uses none of it.
TEST(MoverWrites, no_more_is_written_than_the_devices_endurance_allows) {
  constexpr std::int64_t kDay = std::int64_t{86'400'000} * M::kMs;
  M m({.frames = 3, .a_day = 1});
  const Handle x = m.cold(0x11), y = m.buffer();
  m.write(y, 0x22);
  const Call& refused = m.ask(RequestKind::evict, {M::access(y, kRead)});
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_SAYS(refused.request.status, "raise endurance");
  m.now += kDay / 2;
  EXPECT_EQ(m.ask(RequestKind::evict, {M::access(y, kRead)}).code(), Code::no_capacity);
  m.now += kDay / 2 + M::kMs;
  m.evict(y);
  m.write(y, 0x44);
  m.now += kDay / 10 * 6;
  EXPECT_EQ(m.ask(RequestKind::evict, {M::access(y, kRead)}).code(), Code::no_capacity);
  m.now += kDay + M::kMs;
  m.write(x, 0x11);
  m.evict(x);  // Nothing has changed, so the reserved budget is returned.
  m.write(y, 0x33);
  m.evict(y);
  EXPECT_EQ(m.value(y), 0x33);
}

// The budget reserved for an extent that was in use, and therefore stayed, is returned.
TEST(MoverWrites, nor_of_what_leaves_its_window) {
  constexpr std::int64_t kDay = std::int64_t{86'400'000} * M::kMs;
  M m({.frames = 3, .a_day = 2});
  std::vector<Handle> all;
  for (unsigned char i = 0; i < 3; ++i) {
    all.push_back(m.mapped());
    m.touch(all.back(), 0);
    m.end_all();
    std::memset(m.window(all.back()), i + 1, M::kExtent);  // Zeros would need no write.
  }
  Call& view = m.acquire(all[0], kRead);
  ASSERT_EQ(view.code(), Code::ok);
  EXPECT_EQ(m.ask(RequestKind::evict, {M::access(all[0], kRead)}).code(), Code::busy);
  m.release(view);
  m.evict(all[0]);
  m.evict(all[1]);
  const Call& refused = m.ask(RequestKind::evict, {M::access(all[2], kRead)});
  m.end_all();
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_SAYS(refused.request.status, "raise endurance");
  EXPECT_TRUE(m.resident(all[2]));
  m.now += kDay + M::kMs;
  m.evict(all[2]);
  for (unsigned char i = 0; i < 3; ++i) {
    EXPECT_EQ(m.value(all[i]), i + 1);
    m.now += kDay + M::kMs;
  }
}

TEST(MoverWrites, who_needs_room_is_told_that_no_more_may_be_written_and_served_when_it_may) {
  constexpr std::int64_t kDay = std::int64_t{86'400'000} * M::kMs;
  M m({.frames = 2, .a_day = 1});
  const Handle x = m.cold(0x11), y = m.buffer(), z = m.buffer();
  m.write(y, 0x22);
  m.write(z, 0x33);
  const Call& refused = m.acquire(x, kRead);
  m.end_all();
  EXPECT_EQ(refused.code(), Code::no_capacity) << "at once: it would be a day";
  EXPECT_SAYS(refused.request.status, "endurance");
  EXPECT_TRUE(m.mover.idle());
  m.at(m.now + kDay + M::kMs);
  EXPECT_EQ(m.value(x), 0x11);
  m.at(m.now + kDay + M::kMs);
  EXPECT_EQ(m.value(y), 0x22);
  m.at(m.now + kDay + M::kMs);
  EXPECT_EQ(m.value(z), 0x33);
}

// ---- Receipts

TEST(MoverWrites, receipts_say_what_moved_where_why_and_when) {
  M m;
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const std::int64_t began = m.now;
  m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  m.now += 3 * M::kMs;
  m.end_io(EIO);
  m.now += M::kMs;
  m.end_io();
  EXPECT_EQ(m.value(x), 0x11);
  ReceiptsCopy copy;
  m.mover.copy_receipts(copy, 16);
  constexpr Place kNowhere{}, kDram{Kind::dram, 0}, kBlock{Kind::block, 0};
  const auto find = [&](Place from, Place to) {
    const auto at = std::find_if(copy.last.begin(), copy.last.end(), [&](const Receipt& each) {
      return each.from == from && each.to == to;
    });
    EXPECT_NE(at, copy.last.end());
    return at == copy.last.end() ? Receipt{} : *at;
  };
  const Receipt down = find(kDram, kBlock);
  EXPECT_EQ(down.buffer, x);
  EXPECT_EQ(down.bytes, M::kExtent);
  EXPECT_EQ(down.begun_ns, began);
  EXPECT_EQ(down.ended_ns, began + 4 * M::kMs);
  EXPECT_EQ(down.requests, 2u);
  EXPECT_EQ(down.depth, 1u);
  EXPECT_EQ(down.reason, Reason::asked);
  EXPECT_FALSE(down.failed);
  const Receipt left = find(kDram, kNowhere);
  EXPECT_EQ(left.bytes, M::kExtent);
  EXPECT_EQ(left.reason, Reason::asked);
  const Receipt up = find(kBlock, kDram);
  EXPECT_EQ(up.bytes, M::kExtent);
  EXPECT_EQ(up.reason, Reason::demand);
}

TEST(MoverWrites, counters_say_what_there_is) {
  M m({.frames = 3, .on_disk = 8});
  const Handle x = m.cold(0x11), y = m.buffer(2);
  const Call& view = m.acquire({M::extent_access(y, 0, kWrite)});
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  const Stats stats = m.stats();
  EXPECT_EQ(stats.dram_budget, 3 * M::kExtent);
  EXPECT_EQ(stats.dram_pinned, M::kExtent);
  EXPECT_EQ(stats.block_budget, 8 * M::kExtent);
  EXPECT_EQ(stats.block_used, M::kExtent);
  EXPECT_EQ(stats.buffers, 2u);
  EXPECT_EQ(stats.extents, 3u);
  EXPECT_TRUE(m.extent(x).copy().owned());
}

// ---- Droppable buffers

TEST(MoverWrites, where_nothing_can_be_written_droppable_bytes_give_way_and_say_so) {
  M m({.frames = 1, .disks = 0});
  const Handle x = m.buffer(1, kDroppable);
  const Handle other = m.buffer();
  m.write(x, 0x11);
  m.write(other, 0x22);
  EXPECT_FALSE(m.resident(x));
  EXPECT_EQ(m.stats().dropped, M::kExtent);
  EXPECT_EQ(m.free(other).code(), Code::ok);
  EXPECT_EQ(m.acquire(x, kRead).code(), Code::discarded);
}

// The block tier is full too. Droppable bytes are dropped from it before a request is refused.
TEST(MoverWrites, droppable_bytes_leave_their_slots_before_a_request_is_refused) {
  M m({.frames = 1, .on_disk = 1});
  const Handle dropped = m.cold(0x11, 1, kDroppable), x = m.buffer(), y = m.buffer();
  m.write(x, 0x22);
  m.write(y, 0x33);
  EXPECT_EQ(m.stats().dropped, M::kExtent);
  EXPECT_EQ(m.bits(dropped).phase(), Phase::lost);
  EXPECT_FALSE(m.resident(x));
  EXPECT_TRUE(m.extent(x).copy().owned());
}

TEST(MoverWrites, two_droppable_extents_are_in_slots_then_the_first_that_left_memory_is_dropped) {
  M m({.frames = 1, .on_disk = 2});
  const Handle first = m.cold(0x11, 1, kDroppable), second = m.cold(0x22, 1, kDroppable);
  EXPECT_EQ(m.value(first), 0x11);
  m.evict(first);  // Now it has left after the other one.
  const Handle x = m.buffer(), y = m.buffer();
  m.write(x, 0x33);
  m.write(y, 0x44);
  EXPECT_EQ(m.stats().dropped, M::kExtent);
  EXPECT_EQ(m.bits(second).phase(), Phase::lost);
  EXPECT_EQ(m.bits(first).phase(), Phase::none);
}

// ---- Children of fork

TEST(MoverWrites, what_a_child_of_fork_reads_is_not_written_until_it_has_ended) {
  M m;
  const Handle x = m.cold(0x11);
  m.mover.rest(true);
  m.step();
  ASSERT_TRUE(m.mover.rested());
  const std::uint32_t child = m.mover.parent_of_child();
  m.mover.rest(false);
  const SlotId before = m.extent(x).copy().slot;

  m.write(x, 0x11);
  m.evict(x);
  EXPECT_EQ(m.extent(x).copy().slot, before) << "nothing has changed";
  m.write(x, 0x22);
  m.evict(x);
  EXPECT_FALSE(m.extent(x).copy().slot == before);
  EXPECT_EQ(m.block.usage().in_use, 2 * M::kExtent);
  EXPECT_TRUE(m.mover.waits_for_child());
  EXPECT_EQ(m.value(x), 0x22);
  m.mover.child_ended(child);
  m.step();
  EXPECT_EQ(m.block.usage().in_use, M::kExtent);
  EXPECT_FALSE(m.mover.waits_for_child());
}

TEST(MoverWrites, while_it_rests_for_a_fork_nothing_begins_and_afterwards_all_goes_on) {
  M m;
  const Handle x = m.cold(0x11), y = m.buffer();
  const Call& reader = m.acquire(x, kRead);
  m.mover.rest(true);
  const Call& writer = m.post(RequestKind::acquire, {M::access(y, kWrite)});
  m.settle();
  EXPECT_FALSE(m.mover.rested());
  m.end_all();
  EXPECT_TRUE(m.mover.rested());
  EXPECT_EQ(reader.code(), Code::ok) << "it has all it asked for";
  EXPECT_FALSE(writer.done());
  m.mover.rest(false);
  m.step();
  m.end_all();
  EXPECT_EQ(writer.code(), Code::ok);
}

}  // namespace
}  // namespace tiermem

// Destages: a fast slot tier that is nearly full copies its coldest extents to the next tier, and
// gives their slots to others when it needs them.
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

// The fast tier has room for 16 extents, of which one is kept ready.
struct Destages : ::testing::Test {
  static constexpr unsigned kFast = 16;
  M m{{.frames = 6, .on_disk = kFast, .on_slow_disk = 64}};
  std::vector<Handle> buffers;

  /// Fills slots of the fast tier, each with a buffer of its own. The value is the number from 1.
  void fill(unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      buffers.push_back(m.cold(static_cast<unsigned char>(buffers.size() + 1)));
    }
  }
  std::uint64_t fast_used() const { return m.block.usage().in_use / M::kExtent; }
  std::uint64_t slow_used() const { return m.slow_block.usage().in_use / M::kExtent; }
  std::uint8_t tier_of(Handle handle) { return m.extent(handle).copy().tier; }
  bool has_replica(Handle handle) { return m.residency.extents.has_replica(m.ref(handle)); }
  /// Makes the mover step until a destage reads the fast tier, and keeps the read.
  void begin_destage() {
    for (unsigned n = 1; n < kFast; ++n) {
      fill(1);
    }
    const Handle last = m.buffer();
    m.write(last, 99);
    Call& evict = m.ask(RequestKind::evict, {M::access(last, kRead)});
    while (!evict.done()) {
      m.run_workers();
      if (!evict.done()) {
        ASSERT_FALSE(m.port.requests.empty());
        m.port.end();
        m.settle();
      }
    }
    m.run_workers();
    buffers.push_back(last);
    ASSERT_EQ(m.port.requests.size(), 1u) << "the coldest extent is read";
    ASSERT_FALSE(m.port.requests[0].write);
  }
};

TEST_F(Destages, the_fast_tier_has_room_then_nothing_goes_to_the_slow_one) {
  fill(kFast - 1);
  EXPECT_EQ(slow_used(), 0u);
}

TEST_F(Destages, the_fast_tier_is_nearly_full_then_the_coldest_extent_gets_a_replica) {
  fill(kFast);
  EXPECT_EQ(fast_used(), kFast);
  EXPECT_EQ(slow_used(), 1u);
  EXPECT_TRUE(has_replica(buffers[0]));
  EXPECT_EQ(tier_of(buffers[0]), 0) << "reads still go to the fast tier";
  EXPECT_FALSE(has_replica(buffers[1]));
  const std::uint64_t reads = m.slow_port.reads;
  EXPECT_EQ(m.value(buffers[0]), 1);
  EXPECT_EQ(m.slow_port.reads, reads);
}

TEST_F(Destages, more_is_demoted_then_it_goes_to_the_fast_tier_and_the_coldest_to_the_slow_one) {
  fill(kFast + 4);
  EXPECT_EQ(fast_used(), kFast);
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(tier_of(buffers[i]), 1) << i;
  }
  for (unsigned i = 4; i < kFast + 4; ++i) {
    EXPECT_EQ(tier_of(buffers[i]), 0) << i;
  }
  for (unsigned i = 0; i < kFast + 4; ++i) {
    EXPECT_EQ(m.value(buffers[i]), static_cast<int>(i + 1));
  }
}

TEST_F(Destages, an_extent_is_written_again_then_its_replica_ends) {
  fill(kFast);
  ASSERT_TRUE(has_replica(buffers[0]));
  m.write(buffers[0], 77);
  m.evict(buffers[0]);
  EXPECT_EQ(m.value(buffers[0]), 77);
  EXPECT_FALSE(has_replica(buffers[0]));
}

TEST_F(Destages, a_buffer_is_freed_then_both_slots_are_free) {
  fill(kFast);
  ASSERT_TRUE(has_replica(buffers[0]));
  m.free(buffers[0]);
  m.end_all();
  EXPECT_EQ(fast_used(), kFast - 1u);
  EXPECT_EQ(slow_used(), 0u);
}

TEST_F(Destages, a_slot_is_given_to_another_extent_then_its_replica_goes_along) {
  fill(kFast);
  ASSERT_TRUE(has_replica(buffers[0]));
  const Handle to = m.buffer();
  Call& call =
      m.prepare(RequestKind::move_slots, {M::access(buffers[0], kRead), M::access(to, kRead)});
  std::uint8_t moved = 0;
  call.request.moved = &moved;
  m.post(call);
  m.settle();
  ASSERT_EQ(moved, 1);
  EXPECT_FALSE(has_replica(buffers[0]));
  EXPECT_TRUE(has_replica(to));
  fill(3);
  EXPECT_EQ(tier_of(to), 1) << "its first slot gave way";
  EXPECT_EQ(m.value(to), 1);
  EXPECT_EQ(m.value(buffers[0]), 0);
}

// The first read finds wrong bytes, and so does the second: the bytes come from the replica.
TEST_F(Destages, the_slot_has_wrong_bytes_then_they_are_read_from_the_replica) {
  fill(kFast);
  ASSERT_TRUE(has_replica(buffers[0]));
  Call& call = m.acquire(buffers[0], kRead);
  m.run_workers();
  for (int n = 0; n < 2; ++n) {
    ASSERT_FALSE(m.port.requests.empty());
    m.port.end_with_damage();
    m.run_workers();
  }
  m.end_all();
  ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
  EXPECT_EQ(call.data()[0], std::byte{1});
  m.release(call);
  EXPECT_EQ(tier_of(buffers[0]), 1) << "the bad slot is given up";
  EXPECT_EQ(m.slow_port.reads, 1u);
}

TEST_F(Destages, the_slot_cannot_be_read_then_the_replica_is) {
  fill(kFast);
  Call& call = m.acquire(buffers[0], kRead);
  m.run_workers();
  for (int n = 0; n < 40 && m.slow_port.requests.empty() && !call.done(); ++n) {
    ASSERT_FALSE(m.port.requests.empty());
    m.port.end(0, EIO);
    m.run_workers();
  }
  m.end_all();
  ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
  EXPECT_EQ(call.data()[0], std::byte{1});
  m.release(call);
}

// As above, for one page of a mapped extent, which comes by itself.
TEST(DestagesOfParts, a_touched_page_has_wrong_bytes_then_it_is_read_from_the_replica) {
  M m{{.frames = 6, .on_disk = 16, .on_slow_disk = 64, .parts = true}};
  const Handle mapped = m.cold(7, 1, kMapped);
  for (unsigned n = 1; n < 16; ++n) {
    (void)m.cold(static_cast<unsigned char>(100 + n));
  }
  ASSERT_TRUE(m.residency.extents.has_replica(m.ref(mapped)));
  Call& touch = m.touch(mapped, 1);
  m.run_workers();
  for (int n = 0; n < 2; ++n) {
    ASSERT_FALSE(m.port.requests.empty());
    m.port.end_with_damage();
    m.run_workers();
  }
  ASSERT_FALSE(m.slow_port.requests.empty()) << "the replica is read";
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok) << touch.request.status.message();
  EXPECT_NE(m.extent(mapped).parts, 0u) << "the extent is in parts";
  EXPECT_EQ(m.window(mapped)[kSmallestExtent], std::byte{7});
  EXPECT_EQ(m.extent(mapped).copy().tier, 1) << "the bad slot is given up";
}

// Only the third page is in the slot. The first one is written, so all goes to another slot.
TEST(DestagesOfParts, an_extent_is_put_together_then_wrong_bytes_come_from_the_replica) {
  M m{{.frames = 6, .on_disk = 16, .on_slow_disk = 64, .parts = true}};
  const Handle mapped = m.mapped();
  Call& call = m.acquire(mapped, kWrite);
  m.end_all();
  std::memset(call.data() + 2 * kSmallestExtent, 42, kSmallestExtent);
  m.release(call);
  m.evict(mapped);
  for (unsigned n = 1; n < 16; ++n) {
    (void)m.cold(static_cast<unsigned char>(100 + n));
  }
  ASSERT_TRUE(m.residency.extents.has_replica(m.ref(mapped)));
  const Call& touch = m.touch(mapped, 0, true);
  m.end_all();
  ASSERT_EQ(touch.code(), Code::ok);
  m.host.written(m.window(mapped));
  m.window(mapped)[0] = std::byte{9};
  const Call& evict = m.ask(RequestKind::evict, {M::access(mapped, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  ASSERT_FALSE(m.port.requests[0].write) << "the missing page is read";
  m.port.end_with_damage();
  m.run_workers();
  ASSERT_EQ(m.slow_port.requests.size(), 1u) << "the replica is read";
  m.end_all();
  EXPECT_EQ(evict.code(), Code::ok) << evict.request.status.message();
  Call& read = m.acquire(mapped, kRead);
  m.end_all();
  ASSERT_EQ(read.code(), Code::ok) << read.request.status.message();
  EXPECT_EQ(read.data()[0], std::byte{9});
  EXPECT_EQ(read.data()[2 * kSmallestExtent], std::byte{42});
  m.release(read);
}

TEST_F(Destages, a_request_wants_the_extent_then_it_does_not_wait_for_the_slow_tier) {
  begin_destage();
  Call& call = m.acquire(buffers[0], kRead);
  while (!call.done()) {
    m.run_workers();
    ASSERT_TRUE(m.slow_port.requests.empty()) << "the destage is given up";
    if (!m.port.requests.empty()) {
      m.port.end();
    }
    m.settle();
  }
  EXPECT_EQ(call.code(), Code::ok);
  EXPECT_EQ(call.data()[0], std::byte{1});
  m.release(call);
  m.end_all();
  EXPECT_FALSE(has_replica(buffers[0]));
}

TEST_F(Destages, the_buffer_is_freed_under_a_destage_then_all_is_given_back) {
  begin_destage();
  Call& freed = m.free(buffers[0]);
  m.run_workers();
  EXPECT_TRUE(freed.done()) << "a free waits for no slow tier";
  EXPECT_EQ(fast_used(), kFast) << "a device reads the slot, so no other extent may write it";
  m.end_all();
  EXPECT_EQ(fast_used(), kFast - 1u);
  EXPECT_EQ(slow_used(), 0u);
}

TEST_F(Destages, the_slow_tier_refuses_the_write_then_the_bytes_stay_and_others_are_tried_later) {
  begin_destage();
  m.port.end();
  m.run_workers();
  for (int n = 0; n < 40 && !m.slow_port.requests.empty(); ++n) {
    m.slow_port.end(0, EIO);
    m.run_workers();
  }
  EXPECT_EQ(slow_used(), 0u);
  EXPECT_EQ(fast_used(), kFast);
  EXPECT_FALSE(has_replica(buffers[0]));
  for (unsigned i = 0; i + 1 < kFast; ++i) {
    EXPECT_EQ(m.value(buffers[i]), static_cast<int>(i + 1));
  }
}

TEST_F(Destages, the_fast_tier_has_refused_bytes_then_it_is_not_emptied) {
  m.slow_block.set_budget(0);  // No destage works.
  fill(kFast);
  ASSERT_EQ(slow_used(), 0u);
  m.slow_block.set_budget(64 * M::kExtent);
  fill(1);
  ASSERT_EQ(tier_of(buffers.back()), 1) << "no slot of the fast tier was ready";
  for (int second = 0; second < 60; ++second) {
    m.at(m.now + 1'000'000'000);
    m.step();
    m.end_all();
  }
  EXPECT_GE(fast_used(), kFast - 1u) << "one part in sixteen is kept ready";
  EXPECT_LE(slow_used(), 3u);
}

TEST_F(Destages,
       the_slow_tier_is_full_then_its_replicas_give_way_to_bytes_that_have_no_other_place) {
  m.slow_block.set_budget(M::kExtent);
  fill(kFast);
  ASSERT_EQ(slow_used(), 1u);
  ASSERT_TRUE(has_replica(buffers[0]));
  m.block.set_budget(0);  // It takes no more.
  fill(1);
  EXPECT_EQ(m.value(buffers.back()), kFast + 1);
  EXPECT_EQ(m.value(buffers[0]), 1);
}

TEST_F(Destages, a_child_reads_the_slot_then_it_does_not_give_way) {
  fill(kFast);
  ASSERT_TRUE(has_replica(buffers[0]));
  m.mover.rest(true);
  m.end_all();
  const std::uint32_t child = m.mover.parent_of_child();
  m.mover.rest(false);
  fill(2);
  EXPECT_EQ(tier_of(buffers[0]), 0);
  m.mover.child_ended(child);
  fill(2);
  for (unsigned i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(m.value(buffers[i]), static_cast<int>(i + 1));
  }
}

// A slot that lacks pages: they are packed again after the comparison.
TEST_F(Destages, a_slot_has_some_pages_then_its_replica_has_the_same) {
  const Handle sparse = m.buffer();
  Call& call = m.acquire(sparse, kWrite);
  m.end_all();
  std::memset(call.data() + 2 * kSmallestExtent, 42, kSmallestExtent);
  m.release(call);
  m.evict(sparse);
  ASSERT_NE(m.extent(sparse).copy().pages, nullptr);
  fill(kFast + 3);
  ASSERT_EQ(tier_of(sparse), 1);
  ASSERT_NE(m.extent(sparse).copy().pages, nullptr);
  Call& read = m.acquire(sparse, kRead);
  m.end_all();
  ASSERT_EQ(read.code(), Code::ok) << read.request.status.message();
  EXPECT_EQ(read.data()[0], std::byte{0});
  EXPECT_EQ(read.data()[2 * kSmallestExtent], std::byte{42});
  EXPECT_EQ(read.data()[3 * kSmallestExtent - 1], std::byte{42});
  EXPECT_EQ(read.data()[3 * kSmallestExtent], std::byte{0});
  m.release(read);
}

TEST_F(Destages, a_receipt_names_both_tiers) {
  fill(kFast);
  ReceiptsCopy copy;
  m.mover.copy_receipts(copy, 64);
  const auto destage = std::find_if(copy.last.begin(), copy.last.end(), [](const Receipt& each) {
    return each.from == Place{Kind::block, 0} && each.to == Place{Kind::block, 1};
  });
  ASSERT_NE(destage, copy.last.end());
  EXPECT_EQ(destage->bytes, M::kExtent);
  EXPECT_EQ(destage->reason, Reason::ahead);
}

}  // namespace
}  // namespace tiermem

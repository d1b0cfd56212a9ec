// The engine alone: transfers from their start to their end, without requests. Workers and devices
// end what they were given when the test says so.
#include "mover/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <span>

#include "tests/unit/mover_doubles.hpp"
#include "tier/block.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 16384;  // Four pages.
constexpr std::uint32_t kWaiter = 1;      // The engine only looks whether there is one.

struct TransferEngineTest : ::testing::Test {
  TransferEngineTest()
      : host(8 * kExtent, {Kind::dram, 0}, dice),
        port(1, 64 * kExtent),
        block(port, {.depth = 8, .piece_bytes = kExtent, .grow_bytes = 4 * kExtent}),
        residency(64, 256, 1),
        directory(residency),
        slots(residency.extents.capacity(), std::vector<SlotTier*>{&block}, nullptr, workers, {}),
        journal(directory, memories, 16),
        stock(residency),
        engine(residency, memories, journal, stock, slots, workers, options) {
    memories.add(host, residency.extents.capacity());
    EXPECT_TRUE(memories.first(kHost).recency.reserve(256).ok());
    engine.begin_step(1);
  }
  ExtentRef new_extent() {
    BufferShape shape;
    shape.bytes = kExtent;
    shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(kExtent));
    shape.extents = 1;
    shape.label = "buffer";
    const Handle handle = *residency.buffers.create(shape);
    const std::uint32_t index = Buffers::index_of(handle);
    const ExtentRef ref = residency.buffers.at(index).first.load();
    directory.begin(ref, index, false);
    return ref;
  }
  Extent& extent(ExtentRef ref) { return residency.extents.at(ref); }
  ExtentBits bits(ExtentRef ref) { return residency.extents.word(kHost, ref).load(); }
  void promote(ExtentRef ref) {
    const FrameId frame = memories.first(kHost).take_frame(directory.frame_request(ref, kHost));
    ASSERT_TRUE(frame.valid());
    engine.start_promote(ref, kHost, frame, Priority::demand, nullptr);
  }
  // Workers and devices end everything; reads and writes end with `error`.
  void end_all(int error = 0) {
    for (int i = 0; i < 100 && engine.live() != 0; ++i) {
      engine.issue_io();
      while (!workers.jobs.empty()) {
        workers.run();
      }
      while (!port.requests.empty()) {
        port.end(0, error);
      }
      (void)engine.take_completions();
      (void)engine.grant_places();
      EXPECT_EQ(engine.check(), "");
    }
    EXPECT_EQ(engine.live(), 0u);
  }
  // A resident extent with bytes that no slot has.
  ExtentRef dirty_extent() {
    const ExtentRef ref = new_extent();
    promote(ref);
    end_all();
    std::byte* const data = residency.extents.address(ref).load();
    std::fill_n(data, kExtent, std::byte{7});
    residency.extents.word(kHost, ref).set_dirty();
    return ref;
  }

  ScriptedDice dice;
  HeldWorkers workers;
  sim::FakeMemory host;
  HeldPort port;
  BlockTier block;
  Residency residency;
  Directory directory;
  SlotTiers slots;
  Journal journal;
  MoverOptions options;
  Memories memories;
  Stock stock;
  TransferEngine engine;
};

TEST_F(TransferEngineTest, an_idle_engine_needs_no_call) {
  EXPECT_EQ(engine.next(), kNever);
  EXPECT_EQ(engine.next_for_room(), kNever);
  EXPECT_TRUE(engine.rests());
  EXPECT_FALSE(engine.take_completions());
  EXPECT_EQ(engine.check(), "");
}

TEST_F(TransferEngineTest, a_promote_of_a_new_extent_brings_zeros_and_reports_its_end) {
  const ExtentRef ref = new_extent();
  promote(ref);
  ASSERT_NE(engine.transfer_of(ref), nullptr);
  EXPECT_EQ(bits(ref).phase(), Phase::incoming);
  EXPECT_EQ(engine.live(), 1u);
  extent(ref).waiters = kWaiter;
  end_all();
  EXPECT_EQ(bits(ref).phase(), Phase::exclusive);
  EXPECT_EQ(engine.transfer_of(ref), nullptr);
  const std::span<const Ended> ended = engine.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].ref, ref);
  EXPECT_TRUE(ended[0].error.ok());
  const std::byte* const data = residency.extents.address(ref).load();
  EXPECT_TRUE(std::all_of(data, data + kExtent, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(TransferEngineTest, an_end_that_no_request_waits_for_is_not_reported) {
  promote(new_extent());
  end_all();
  EXPECT_TRUE(engine.ended().empty());
}

TEST_F(TransferEngineTest, a_dirty_extent_is_written_before_its_frame_goes) {
  const ExtentRef ref = dirty_extent();
  const std::uint64_t used = host.usage().in_use;
  EXPECT_TRUE(engine.start_evict(ref, kHost, Priority::room));
  EXPECT_EQ(memories.first(kHost).freeing, kExtent);
  EXPECT_EQ(engine.freeing()[kHost], kExtent);
  end_all();
  EXPECT_EQ(bits(ref).phase(), Phase::none);
  EXPECT_TRUE(extent(ref).copy().owned());
  EXPECT_FALSE(extent(ref).copy().partial());
  EXPECT_LT(host.usage().in_use, used);
  EXPECT_EQ(memories.first(kHost).freeing, 0u);
  promote(ref);
  end_all();
  EXPECT_EQ(residency.extents.address(ref).load()[kExtent - 1], std::byte{7});
}

TEST_F(TransferEngineTest, a_clean_extent_leaves_at_once_and_says_so_if_it_is_watched) {
  const ExtentRef ref = dirty_extent();
  EXPECT_TRUE(engine.start_demote(ref, kHost, false, Priority::background));
  end_all();
  EXPECT_FALSE(bits(ref).dirty());
  engine.watch(ref);
  EXPECT_FALSE(engine.left_watched());
  EXPECT_TRUE(engine.start_evict(ref, kHost, Priority::room));
  EXPECT_EQ(engine.live(), 0u);
  EXPECT_TRUE(engine.left_watched());
  engine.begin_step(2);
  EXPECT_FALSE(engine.left_watched());
  engine.unwatch(ref);
}

TEST_F(TransferEngineTest, bytes_that_cannot_be_written_stay_and_the_error_is_about_leaving) {
  const ExtentRef ref = dirty_extent();
  EXPECT_TRUE(engine.start_evict(ref, kHost, Priority::room));
  extent(ref).waiters = kWaiter;
  end_all(EIO);
  EXPECT_EQ(bits(ref).phase(), Phase::exclusive);
  EXPECT_TRUE(bits(ref).dirty());
  const std::span<const Ended> ended = engine.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].failed, Ended::Failed::to_leave);
  EXPECT_EQ(ended[0].error.code(), Code::io_error);
  EXPECT_TRUE(slots.paused(1));
  EXPECT_FALSE(engine.copies().can_write(ref));
  EXPECT_EQ(engine.next_for_room(), slots.paused_until());
}

TEST_F(TransferEngineTest, bytes_that_cannot_be_read_stay_in_their_slot) {
  const ExtentRef ref = dirty_extent();
  EXPECT_TRUE(engine.start_evict(ref, kHost, Priority::room));
  end_all();
  const std::uint64_t used = host.usage().in_use;
  promote(ref);
  extent(ref).waiters = kWaiter;
  end_all(EIO);
  EXPECT_EQ(bits(ref).phase(), Phase::none);
  EXPECT_TRUE(extent(ref).copy().owned());
  EXPECT_EQ(host.usage().in_use, used);
  const std::span<const Ended> ended = engine.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].failed, Ended::Failed::to_read);
  EXPECT_EQ(ended[0].error.code(), Code::io_error);
}

TEST_F(TransferEngineTest, a_discard_is_staged_until_its_request_publishes_it) {
  const ExtentRef ref = new_extent();
  Request request;
  const FrameId frame = memories.first(kHost).take_frame(directory.frame_request(ref, kHost));
  engine.start_promote(ref, kHost, frame, Priority::demand, &request);
  for (int i = 0; i < 10 && engine.transfer_of(ref)->stage != Stage::parked; ++i) {
    while (!workers.jobs.empty()) {
      workers.run();
    }
    (void)engine.take_completions();
  }
  EXPECT_TRUE(engine.is_parked(request, ref));
  EXPECT_EQ(bits(ref).phase(), Phase::incoming);
  engine.give_place(request, ref);
  engine.publish_parked(request, ref);
  EXPECT_EQ(bits(ref).phase(), Phase::exclusive);
  EXPECT_TRUE(bits(ref).dirty()) << "the caller overwrites it";
  EXPECT_EQ(engine.live(), 0u);
}

TEST_F(TransferEngineTest, a_spare_buffer_that_does_not_fit_is_given_up_with_its_frame) {
  const std::uint64_t used = host.usage().in_use;
  ASSERT_TRUE(stock.begin_order(kExtent, false));
  const ExtentRef ref = *stock.create(kExtent);
  stock.begin(ref);
  const FrameId frame = memories.first(kHost).take_frame(directory.frame_request(ref, kHost));
  engine.start_promote(ref, kHost, frame, Priority::background, nullptr);
  stock.order_begun(kExtent);
  end_all();
  EXPECT_EQ(bits(ref).phase(), Phase::zero) << "no spare fits: the limit is 0";
  EXPECT_EQ(host.usage().in_use, used);
  EXPECT_EQ(stock.take_given_up().size(), 1u);
}

TEST_F(TransferEngineTest, a_discard_with_a_request_that_ends_is_undone) {
  const ExtentRef ref = new_extent();
  const std::uint64_t used = host.usage().in_use;
  Request request;
  const FrameId frame = memories.first(kHost).take_frame(directory.frame_request(ref, kHost));
  engine.start_promote(ref, kHost, frame, Priority::demand, &request);
  engine.unpark(request, ref);
  end_all();
  EXPECT_EQ(bits(ref).phase(), Phase::zero);
  EXPECT_EQ(host.usage().in_use, used);
}

}  // namespace
}  // namespace tiermem

// Memory of devices, step by step: copies during which the source is written, copies that streams
// wait for, failing copies; extents that leave a device; a lost device, and a driver that refuses
// memory.
#include <gtest/gtest.h>

#include <cstring>

#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr Place kGpu{Kind::gpu, 0}, kOther{Kind::gpu, 1};
constexpr unsigned kDevice = 1;  // The space of the first device.

Call& acquire_for_stream(M& m, Handle x, std::uint32_t mode) {
  Call& call = m.prepare(RequestKind::acquire, {M::access(x, mode, kGpu)});
  call.request.for_stream = true;
  m.post(call);
  m.settle();
  return call;
}

// Runs jobs until copies are in progress.
void run_jobs(M& m) {
  m.settle();
  while (!m.workers.jobs.empty()) {
    m.workers.run();
    m.settle();
  }
}

// ---- Copies

TEST(MoverDevices, a_source_that_is_written_under_the_copy_is_copied_again_when_nobody_writes) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  const Call& reader = m.acquire(x, kRead, kGpu);
  run_jobs(m);
  ASSERT_EQ(m.workers.copies.size(), 1u);
  Call& writer = m.acquire(x, kWrite);
  ASSERT_EQ(writer.code(), Code::ok);
  std::memset(writer.data(), 0x22, M::kExtent);
  m.workers.end_copy();
  run_jobs(m);
  EXPECT_TRUE(m.workers.copies.empty()) << "it is written still";
  EXPECT_FALSE(reader.done());
  m.release(writer);
  run_jobs(m);
  ASSERT_EQ(m.workers.copies.size(), 1u);
  m.end_all();
  ASSERT_EQ(reader.code(), Code::ok);
  EXPECT_EQ(m.gpu[0].load(reader.data()), std::byte{0x22});
  EXPECT_EQ(m.bits(x).phase(), Phase::shared);
  EXPECT_EQ(m.stats().gpu_bytes_pageable, 2 * M::kExtent) << "twice, of memory that is not locked";
}

TEST(MoverDevices, a_part_of_a_window_is_copied_from_its_home_and_comes_back_for_who_looks) {
  M m({.devices = 1});
  const Handle x = m.buffer(2);
  m.write(x, 0x11);
  Call& kernel = m.acquire({{x, 0, M::kExtent, kRead, kGpu, 0}});
  m.end_all();
  ASSERT_EQ(kernel.code(), Code::ok);
  EXPECT_EQ(m.gpu[0].load(kernel.data()), std::byte{0x11});
  EXPECT_TRUE(m.bits(x, 0).at_home());
  EXPECT_FALSE(m.bits(x, 1).at_home());
  Call& look = m.acquire({M::extent_access(x, 0, kRead)});
  m.end_all();
  ASSERT_EQ(look.code(), Code::ok);
  EXPECT_EQ(look.data(), m.window(x));
  EXPECT_EQ(look.data()[0], std::byte{0x11});
  EXPECT_FALSE(m.bits(x, 0).at_home());
  m.release(look);
  m.release(kernel);
}

TEST(MoverDevices, who_writes_on_a_device_has_the_only_copy_once_the_others_readers_are_gone) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& on_host = m.acquire(x, kRead);
  Call& on_device = m.acquire(x, kRead, kGpu);
  m.end_all();
  ASSERT_EQ(on_device.code(), Code::ok);
  const Call& writer = m.acquire(x, kWrite, kGpu);
  m.end_all();
  EXPECT_FALSE(writer.done());
  m.release(on_host);
  m.end_all();
  EXPECT_EQ(writer.code(), Code::ok);
  EXPECT_FALSE(m.resident(x));
  EXPECT_EQ(m.bits(x, 0, kDevice).phase(), Phase::exclusive);
  EXPECT_TRUE(m.bits(x, 0, kDevice).dirty());
}

TEST(MoverDevices, a_copy_that_fails_is_told_and_leaves_the_source) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  m.dice.fail("copy_in");
  const Call& reader = m.acquire(x, kRead, kGpu);
  m.end_all();
  EXPECT_EQ(reader.code(), Code::io_error);
  EXPECT_EQ(m.gpu[0].usage().in_use, 0u);
  EXPECT_EQ(m.bits(x).phase(), Phase::exclusive);
  EXPECT_EQ(m.value(x), 0x11);
}

// The extent is written on the device after its bytes have been copied to the window. The second
// copy fails.
TEST(MoverDevices,
     what_was_fetched_ahead_and_fails_in_its_window_leaves_it_and_is_counted_no_more) {
  M m({.devices = 1});
  const Handle x = m.buffer(2);
  const std::vector<Access> there = {{x, 0, M::kExtent, kWrite, kGpu, 0}};
  Call& first = m.acquire(there);
  m.end_all();
  ASSERT_EQ(first.code(), Code::ok);
  m.release(first);
  const Call& ahead = m.ask(RequestKind::prefetch, {{x, 0, M::kExtent, kRead, {Kind::dram, 0}, 0}});
  run_jobs(m);
  ASSERT_EQ(m.workers.copies.size(), 1u);
  m.workers.end_copy();
  m.settle();
  ASSERT_EQ(m.workers.waiting(kMap), 1u);
  Call& second = m.acquire(there);
  ASSERT_EQ(second.code(), Code::ok);
  m.gpu[0].store(second.data(), std::byte{0x22});
  m.release(second);
  m.dice.fail("copy_out");
  m.end_all();
  EXPECT_EQ(ahead.code(), Code::ok) << "advice";
  EXPECT_FALSE(m.resident(x, 0));
  EXPECT_TRUE(m.resident(x, 0, kDevice));
  Call& look = m.acquire({M::extent_access(x, 0, kRead)});
  m.end_all();
  ASSERT_EQ(look.code(), Code::ok);
  EXPECT_EQ(look.data()[0], std::byte{0x22});
  m.release(look);
}

// The staging has room for one extent, so the second read waits until the first has arrived.
TEST(MoverDevices, reads_to_a_device_take_turns_where_the_staging_has_room_for_one) {
  M m({.devices = 1});
  const Handle x = m.cold(0x11), y = m.cold(0x22);
  const Call& first = m.acquire(x, kRead, kGpu);
  const Call& second = m.acquire(y, kRead, kGpu);
  run_jobs(m);
  EXPECT_EQ(m.port.requests.size(), 1u);
  m.port.end();
  run_jobs(m);
  EXPECT_TRUE(m.port.requests.empty());
  ASSERT_EQ(m.workers.copies.size(), 1u);
  m.workers.end_copy();
  run_jobs(m);
  EXPECT_EQ(first.code(), Code::ok);
  EXPECT_EQ(m.port.requests.size(), 1u);
  m.end_all();
  EXPECT_EQ(second.code(), Code::ok);
  EXPECT_EQ(m.gpu[0].load(second.data()), std::byte{0x22});
}

// ---- Streams

TEST(MoverDevices, a_stream_has_its_view_once_the_copy_has_begun) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& stream = acquire_for_stream(m, x, kRead);
  Call& host = m.prepare(RequestKind::acquire, {M::access(x, kRead, kGpu)});
  m.post(host);
  run_jobs(m);
  EXPECT_FALSE(stream.done());
  m.workers.begin_copy();
  m.settle();
  EXPECT_EQ(stream.code(), Code::ok);
  EXPECT_EQ(stream.request.arrivals[kDevice], 1u);
  EXPECT_TRUE(m.bits(x, 0, kDevice).pinned());
  EXPECT_EQ(m.bits(x, 0, kDevice).phase(), Phase::incoming);
  EXPECT_FALSE(host.done()) << "it does not wait for the device";
  m.workers.end_copy();
  m.settle();
  EXPECT_EQ(host.code(), Code::ok);
  EXPECT_EQ(host.request.arrivals[kDevice], 0u);
  EXPECT_EQ(m.gpu[0].load(stream.data()), std::byte{0x11});
  m.release(stream);
}

TEST(MoverDevices, a_stream_that_writes_takes_the_source_over_which_goes_when_it_has_been_read) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& stream = acquire_for_stream(m, x, kWrite);
  run_jobs(m);
  m.workers.begin_copy();
  m.settle();
  ASSERT_EQ(stream.code(), Code::ok);
  EXPECT_EQ(m.bits(x).phase(), Phase::outgoing);
  m.workers.end_copy();
  m.settle();
  EXPECT_EQ(m.bits(x).phase(), Phase::none);
  EXPECT_EQ(m.bits(x, 0, kDevice).phase(), Phase::exclusive);
  EXPECT_TRUE(m.bits(x, 0, kDevice).dirty());
  m.release(stream);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverDevices, a_copy_that_fails_under_a_streams_view_goes_when_the_view_ends) {
  for (const bool writes : {false, true}) {
    M m({.devices = 1});
    const Handle x = m.buffer();
    m.write(x, 0x11);
    m.dice.fail("copy_in");
    Call& stream = acquire_for_stream(m, x, writes ? kWrite : kRead);
    run_jobs(m);
    m.workers.begin_copy();
    m.settle();
    ASSERT_EQ(stream.code(), Code::ok);
    m.workers.end_copy();
    m.settle();
    EXPECT_TRUE(m.bits(x, 0, kDevice).pinned());
    EXPECT_EQ(m.gpu[0].usage().in_use, M::kExtent);
    m.release(stream);
    EXPECT_EQ(m.gpu[0].usage().in_use, 0u);
    EXPECT_EQ(m.bits(x, 0, kDevice).phase(), Phase::none);
    if (writes) {
      EXPECT_EQ(m.acquire(x, kRead).code(), Code::lost) << "what the stream wrote is not there";
    } else {
      EXPECT_EQ(m.value(x), 0x11);
    }
  }
}

// ---- Extents that leave

TEST(MoverDevices, what_spills_goes_to_dram_or_by_the_staging_to_a_slot_and_its_memory_back) {
  for (const bool dram_is_full : {false, true}) {
    M m({.frames = 1, .devices = 1, .on_device = 1});
    const Handle x = m.buffer();
    m.write_on_device(x, 0x11);
    Call* pinned = nullptr;
    if (dram_is_full) {
      pinned = &m.acquire(m.buffer(), kWrite);
      m.end_all();
    }
    const Call& release = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
    EXPECT_FALSE(release.done());
    m.end_all();
    EXPECT_EQ(release.code(), Code::ok) << release.request.status.message();
    EXPECT_FALSE(m.resident(x, 0, kDevice));
    EXPECT_EQ(m.gpu[0].usage().used(), 0u);
    EXPECT_EQ(m.resident(x), !dram_is_full);
    EXPECT_EQ(m.port.writes, dram_is_full ? 1u : 0u);
    if (pinned != nullptr) {
      m.release(*pinned);
    }
    EXPECT_EQ(m.value(x), 0x11);
  }
}

TEST(MoverDevices, a_release_waits_for_views_and_one_of_a_device_that_cannot_be_read_says_why) {
  M m({.frames = 1, .devices = 1, .on_device = 1, .disks = 0});
  const Handle x = m.buffer();
  m.write_on_device(x, 0x11);
  Call& view = m.acquire(x, kRead, kGpu);
  ASSERT_EQ(view.code(), Code::ok);
  const Call& release = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
  m.end_all();
  EXPECT_FALSE(release.done());
  m.release(view);
  m.end_all();
  EXPECT_EQ(release.code(), Code::ok);

  m.write_on_device(x, 0x22);
  m.dice.fail("copy_out");
  const Call& failing = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
  m.end_all();
  EXPECT_EQ(failing.code(), Code::io_error);
  EXPECT_SAYS(failing.request.status, "a copy from the device failed");
  EXPECT_TRUE(m.resident(x, 0, kDevice));
}

// The extent is still on its way to the device when it is asked to leave. It arrives, the reader
// that requested it gets its view, and it leaves.
TEST(MoverDevices, a_release_waits_for_what_is_on_its_way_to_the_device) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& reader = m.acquire(x, kRead, kGpu);
  ASSERT_FALSE(reader.done());
  const Call& release = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
  EXPECT_FALSE(release.done());
  m.end_all();
  EXPECT_EQ(reader.code(), Code::ok);
  EXPECT_FALSE(release.done());
  m.release(reader);
  m.end_all();
  EXPECT_EQ(release.code(), Code::ok);
  EXPECT_FALSE(m.resident(x, 0, kDevice));
}

TEST(MoverDevices, release_returns_memory_while_its_other_extents_still_leave) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  const Handle y = m.buffer();
  m.write_on_device(x, 0x11);
  m.write_on_device(y, 0x22);
  const Call& release =
      m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu), M::access(y, kRead, kGpu)});
  for (int n = 0; n < 40 && m.resident(x, 0, kDevice); ++n) {
    m.workers.copies.empty() ? m.workers.run() : m.workers.end_copy();
    m.settle();
  }
  ASSERT_FALSE(m.resident(x, 0, kDevice));
  ASSERT_TRUE(m.resident(y, 0, kDevice)) << "its copy has not ended";
  EXPECT_EQ(m.workers.waiting(kTrim), 1u) << "the memory of x goes back";
  EXPECT_FALSE(release.done());
  m.end_all();
  EXPECT_EQ(release.code(), Code::ok);
  EXPECT_EQ(m.gpu[0].usage().used(), 0u);
  EXPECT_EQ(m.value(x), 0x11);
  EXPECT_EQ(m.value(y), 0x22);
}

TEST(MoverDevices, a_release_ends_when_each_device_has_given_its_memory_back) {
  M m({.devices = 2});
  const Handle x = m.buffer();
  m.write_on_device(x, 0x11);
  const Call& release = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
  for (int n = 0; n < 20 && m.resident(x, 0, kDevice); ++n) {
    m.workers.copies.empty() ? m.workers.run() : m.workers.end_copy();
    m.settle();
  }
  ASSERT_FALSE(m.resident(x, 0, kDevice));
  ASSERT_EQ(m.workers.jobs.size(), 1u) << "its memory goes back";
  EXPECT_FALSE(release.done());
  m.end_all();
  EXPECT_EQ(release.code(), Code::ok);
}

// The release is checked before the writer's end removes the reason why it waits. The mover must
// check it again by itself, without another event.
TEST(MoverDevices, a_release_that_waits_for_a_writer_ends_with_it) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& on_device = m.acquire(x, kRead, kGpu);
  m.end_all();
  const Call& release = m.ask(RequestKind::release_memory, {M::access(x, kRead, kGpu)});
  const Call& writer = m.acquire(x, kWrite);
  m.end_all();
  ASSERT_FALSE(release.done());
  ASSERT_FALSE(writer.done());
  m.release(on_device);
  EXPECT_EQ(writer.code(), Code::ok);
  m.end_all();  // The device's memory is returned.
  EXPECT_EQ(release.code(), Code::ok);
}

// ---- A request in progress loses a copy because another request writes the extent

// The reader reads two extents in one memory, and overwrites one in the other memory. While the
// latter is being prepared, a writer writes the first of the two in the other memory too. This
// removes the copy that the reader needs.
struct Bereft {
  Bereft(M& m, Place here, Place there) : taken(m.buffer()), kept(m.buffer()) {
    for (const Handle each : {taken, kept}) {
      here == kGpu ? m.write_on_device(each, 0x11) : m.write(each, 0x11);
    }
    reader = &m.acquire({M::access(taken, kRead, here), M::access(kept, kRead, here),
                         M::access(m.buffer(), kDiscard, there)});
    writer = &m.acquire(taken, kWrite, there);
    end(m, *writer);
    EXPECT_EQ(writer->code(), Code::ok);
    EXPECT_FALSE(m.resident(taken, 0, here == kGpu ? kDevice : kHost));
    EXPECT_FALSE(reader->done());
  }
  /// Ends everything in progress, except the reader's job, until `call` is done.
  static void end(M& m, const Call& call) {
    for (int n = 0; n < 20 && !call.done(); ++n) {
      if (!m.workers.copies.empty()) {
        m.workers.end_copy();
      } else if (m.workers.jobs.size() > 1) {
        m.workers.run(1);
      } else {
        m.port.end();
      }
      m.settle();
    }
  }
  Handle taken, kept;
  Call* reader = nullptr;
  Call* writer = nullptr;
};

TEST(MoverDevices, who_lost_a_copy_gets_the_frame_that_the_next_in_the_queue_has_collected) {
  M m({.frames = 8, .devices = 1, .on_device = 2});
  Bereft b(m, kGpu, {});
  const Call& next =
      m.acquire({M::access(m.buffer(), kWrite, kGpu), M::access(m.buffer(), kWrite, kGpu)});
  EXPECT_FALSE(next.done());
  EXPECT_EQ(m.gpu[0].usage().in_use, 2 * M::kExtent) << "it has collected the first of two";
  m.end_all();
  m.release(*b.writer);
  m.end_all();
  EXPECT_EQ(b.reader->code(), Code::ok) << b.reader->request.status.message();
  EXPECT_FALSE(next.done());
  m.release(*b.reader);
  m.end_all();
  EXPECT_EQ(next.code(), Code::ok);
}

TEST(MoverDevices, who_lost_a_copy_gets_the_frame_of_what_was_fetched_ahead) {
  M m({.frames = 2, .devices = 1, .on_device = 4});
  const Handle ahead = m.cold(0x33);
  Bereft b(m, {}, kGpu);
  Bereft::end(m, m.ask(RequestKind::prefetch, {M::access(ahead, kRead)}));
  ASSERT_TRUE(m.resident(ahead));
  m.end_all();
  m.release(*b.writer);
  m.end_all();
  EXPECT_EQ(b.reader->code(), Code::ok) << b.reader->request.status.message();
}

// The reader waits for a whole frame, and a quarter of one is free. Later, smaller requests could
// otherwise take it again and again.
TEST(MoverDevices, who_lost_a_copy_is_not_overtaken_by_those_who_need_less) {
  constexpr std::uint64_t kSmall = M::kExtent / 4;
  M m({.frames = 8, .devices = 1, .on_device = 2});
  const Handle ahead = m.buffer(1, 0, kSmall);
  m.write(ahead, 0x33);
  m.evict(ahead);
  Bereft b(m, kGpu, {});
  std::vector<Access> three;
  for (int i = 0; i < 3; ++i) {
    three.push_back(M::access(m.buffer(1, 0, kSmall), kWrite, kGpu));
  }
  Call& others = m.acquire(three);
  Bereft::end(m, others);
  ASSERT_EQ(others.code(), Code::ok);
  m.release(*b.writer);
  m.end_all();
  ASSERT_FALSE(b.reader->done());

  m.ask(RequestKind::prefetch, {M::access(ahead, kRead, kGpu)});
  m.end_all();
  EXPECT_FALSE(m.resident(ahead, 0, kDevice));
  const Call& late = m.acquire(m.buffer(1, 0, kSmall), kWrite, kGpu);
  m.end_all();
  EXPECT_FALSE(late.done());
  m.release(others);
  m.end_all();
  EXPECT_EQ(b.reader->code(), Code::ok) << b.reader->request.status.message();
  m.release(*b.reader);
  m.end_all();
  EXPECT_EQ(late.code(), Code::ok);
}

// No frame can become free for the request. The memory that it has prepared itself is not a reason
// to wait.
TEST(MoverDevices, who_lost_a_copy_and_finds_no_frame_any_more_is_refused) {
  M m({.frames = 8, .devices = 1, .on_device = 2});
  Bereft b(m, kGpu, {});
  const Call& budget = m.set_budget(M::kExtent, kGpu);
  Bereft::end(m, budget);
  EXPECT_EQ(budget.code(), Code::ok);
  m.end_all();
  m.release(*b.writer);
  m.end_all();
  EXPECT_EQ(b.reader->code(), Code::no_capacity);
  EXPECT_EQ(m.value(b.kept), 0x11);
  EXPECT_EQ(m.value(b.taken), 0x11);
  EXPECT_TRUE(m.mover.idle());
}

// The copy fails again and again. A request waits until the pauses reach one second, and is then
// refused.
TEST(MoverDevices, what_fails_until_its_pause_is_a_second_is_waited_for_no_more) {
  M m({.frames = 2, .devices = 1, .on_device = 1, .disks = 0});
  const Handle there = m.buffer();
  m.write_on_device(there, 0x11);
  m.dice.fail("copy_out", ~0u);
  const std::int64_t began = m.now;
  const Call& call = m.acquire(m.buffer(), kWrite, kGpu);
  m.end_all();
  for (const std::int64_t pause : {10, 20, 40, 80, 160, 320, 640}) {
    ASSERT_FALSE(call.done());
    ASSERT_EQ(m.next, m.now + pause * M::kMs);
    m.at(m.next);
    m.end_all();
  }
  EXPECT_EQ(call.code(), Code::no_capacity);
  EXPECT_EQ(m.now, began + 1270 * M::kMs);
  m.dice.heal();
  EXPECT_EQ(m.value(there), 0x11);
}

// The driver refuses memory that the budget allows. The device evicts extents to make room, and has
// its whole budget again one second later.
TEST(MoverDevices, a_device_without_memory_makes_do_with_what_it_has_for_a_second) {
  M m({.devices = 1, .on_device = 2});
  const Handle x = m.buffer(), y = m.buffer();
  m.write_on_device(x, 0x11);
  m.dice.fail("populate");
  const Call& call = m.acquire(y, kWrite, kGpu);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok) << call.request.status.message();
  EXPECT_FALSE(m.resident(x, 0, kDevice)) << "it has made room";
  EXPECT_EQ(m.gpu[0].usage().budget, M::kExtent);
  ASSERT_EQ(m.residency.release(call.views), Code::ok);
  m.at(m.now + 1000 * M::kMs);
  const Call& again = m.acquire(x, kRead, kGpu);
  m.end_all();
  EXPECT_EQ(again.code(), Code::ok);
  EXPECT_EQ(m.gpu[0].usage().budget, 2 * M::kExtent);
  EXPECT_TRUE(m.resident(y, 0, kDevice));
}

TEST(MoverDevices, who_waits_for_memory_that_a_driver_refused_is_served_when_there_is_some) {
  M m({.devices = 1, .on_device = 2});
  const Call& held = m.acquire(m.buffer(), kWrite, kGpu);
  m.end_all();
  ASSERT_EQ(held.code(), Code::ok);
  m.dice.fail("populate");
  const Call& call = m.acquire(m.buffer(), kWrite, kGpu);
  m.end_all();
  EXPECT_FALSE(call.done());
  EXPECT_EQ(m.next, m.now + 1000 * M::kMs);
  m.at(m.next);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok) << call.request.status.message();
}

// ---- A lost device

TEST(MoverDevices, a_lost_device_takes_what_was_there_alone_and_tells_who_waits) {
  M m({.devices = 1, .on_device = 2});
  const Handle there = m.buffer(), both = m.buffer(), wanted = m.buffer();
  m.write_on_device(there, 0x11);
  m.write(both, 0x22);
  Call& shared = m.acquire(both, kRead, kGpu);
  m.end_all();
  ASSERT_EQ(shared.code(), Code::ok);
  const Call& waits = m.acquire({M::access(wanted, kWrite, kGpu), M::access(both, kRead, kGpu)});
  m.gpu[0].lose();
  m.step();
  m.end_all();
  EXPECT_EQ(waits.code(), Code::unavailable);
  EXPECT_EQ(m.acquire(both, kRead, kGpu).code(), Code::unavailable);
  const Call& gone = m.acquire(there, kRead);
  EXPECT_EQ(gone.code(), Code::lost);
  EXPECT_SAYS(gone.request.status, "the device is lost");
  m.release(shared);
  EXPECT_EQ(m.gpu[0].usage().in_use, 0u);
  EXPECT_EQ(m.bits(both).phase(), Phase::exclusive);
  EXPECT_EQ(m.value(both), 0x22);
  EXPECT_EQ(m.ask(RequestKind::prefetch, {M::access(both, kRead, kGpu)}).code(), Code::ok);
  EXPECT_FALSE(m.resident(both, 0, kDevice));
}

// ---- Two devices

TEST(MoverDevices, bytes_go_straight_between_devices_and_by_the_host_where_that_is_refused) {
  for (const bool refused : {false, true}) {
    M m({.devices = 2});
    m.gpu[1].befriend(m.gpu[0]);
    const Handle x = m.buffer();
    m.write_on_device(x, 0x11);
    m.dice.fail("refuse_from", refused ? 1 : 0);
    const Call& call = m.acquire(x, kRead, kOther);
    m.end_all();
    ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
    EXPECT_EQ(m.gpu[1].load(call.data()), std::byte{0x11});
    EXPECT_EQ(m.stats().gpu_bytes_peer, refused ? 0 : 2 * M::kExtent);
    EXPECT_EQ(m.stats().gpu_bytes_staged, refused ? 2 * M::kExtent : 0);
    EXPECT_EQ(m.stats().io_errors, 0u);
    EXPECT_FALSE(m.resident(x));
  }
}

}  // namespace
}  // namespace tiermem

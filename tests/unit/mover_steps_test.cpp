// The mover, step by step, in orders of events that random runs seldom reach. Each test covers a
// fault that existed once, or that could be introduced without failing another test. If the fault
// is put back, the test fails.
#include <gtest/gtest.h>

#include "base/arena.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr Place kGpu{Kind::gpu, 0};

/// Returns a mapped extent that is resident, dirty, and in no slot.
Handle mapped_and_written(M& m) {
  const Handle x = m.mapped();
  m.touch(x, 0);
  m.end_all();
  std::memset(m.window(x), 0x11, M::kExtent);
  return x;
}

// ---- Requests that an answer posts

// The mover's thread serves the faults of mapped buffers: the function of an answer posts a
// request, and no other thread wakes the mover for it.
TEST(MoverSteps, request_posted_by_an_answer_is_served_in_the_next_step) {
  M m;
  const Handle x = m.cold(0x11);
  auto& first = m.prepare(RequestKind::evict, {M::access(x, kRead)});
  auto& second = m.prepare(RequestKind::evict, {M::access(x, kRead)});
  struct Chain {
    M& m;
    Request& second;
  } chain{m, second.request};
  first.request.context = &chain;
  first.request.on_done = [](Request& done) {
    const auto& its = *static_cast<Chain*>(done.context);
    (void)its.m.mover.post(&its.second);
  };
  m.post(first);
  m.settle();
  EXPECT_EQ(second.code(), Code::ok);
  EXPECT_TRUE(second.done());
}

// ---- Extents that a request overwrites

// A request overwrites two extents. The first is prepared, and a discard of it waits. The discard
// must not take the extent away between the moment when it is ready and its pin.
TEST(MoverSteps, an_extent_to_overwrite_is_pinned_before_others_hear_of_it) {
  M m;
  const Handle x = m.buffer(), y = m.buffer();
  const Call& writer = m.acquire({M::access(x, kDiscard), M::access(y, kDiscard)});
  ASSERT_EQ(m.workers.jobs.size(), 2u);
  const Call& gives_up = m.ask(RequestKind::discard, {M::access(x, kDiscard)});
  m.workers.run();
  m.settle();
  EXPECT_FALSE(writer.done());
  EXPECT_FALSE(gives_up.done());
  m.workers.run();
  m.settle();
  EXPECT_EQ(writer.code(), Code::ok) << writer.request.status.message();
  EXPECT_TRUE(m.bits(x).pinned());
  EXPECT_EQ(gives_up.code(), Code::busy);
}

// The list names an extent with the maximum number of writer pins. The memory prepared for the
// other extent is released again. That extent was lost, and must stay lost instead of reading as
// zeros.
TEST(MoverSteps, an_acquire_that_cannot_pin_all_has_overwritten_nothing) {
  M m;
  const Handle lost = m.cold(0x11), crowded = m.buffer();
  const Call& reader = m.acquire(lost, kRead);
  m.run_workers();
  for (int reads = 0; reads < 2; ++reads) {
    m.port.end_with_damage();
    m.run_workers();
  }
  ASSERT_EQ(reader.code(), Code::lost) << reader.request.status.message();
  m.write(crowded, 0x22);
  Span span;
  ASSERT_TRUE(m.residency.resolve(M::access(crowded, kWrite), span, "test").ok());
  for (std::uint32_t n = 0; n < ExtentBits::kMaxWriters; ++n) {
    ASSERT_TRUE(m.residency.pin(span));
  }
  const std::uint64_t in_use = m.host.usage().in_use;

  const Call& both = m.acquire({M::access(lost, kDiscard), M::access(crowded, kWrite)});
  m.run_workers();
  EXPECT_EQ(both.code(), Code::no_capacity) << both.request.status.message();
  EXPECT_EQ(m.bits(lost).phase(), Phase::lost);
  EXPECT_FALSE(m.bits(lost).pinned());
  EXPECT_FALSE(m.bits(lost).dirty());
  EXPECT_EQ(m.host.usage().in_use, in_use);
  EXPECT_EQ(m.acquire(lost, kRead).code(), Code::lost);

  for (std::uint32_t n = 0; n < ExtentBits::kMaxWriters; ++n) {
    m.residency.unpin(span.run());
  }
  const Call& again = m.acquire({M::access(lost, kDiscard), M::access(crowded, kWrite)});
  m.run_workers();
  EXPECT_EQ(again.code(), Code::ok) << again.request.status.message();
}

// One request at a time prepares its extents. The next in the queue is cancelled in the step in
// which it would begin, so the one behind it must begin.
TEST(MoverSteps, whoever_is_next_to_prepare_is_asked_when_the_one_before_it_has_gone) {
  M m;
  const Call& first = m.acquire(m.buffer(), kDiscard);
  Call& second = m.acquire(m.buffer(), kDiscard);
  const Call& third = m.acquire(m.buffer(), kDiscard);
  ASSERT_EQ(m.workers.jobs.size(), 1u);
  m.workers.run();
  m.cancel(second);
  m.settle();
  EXPECT_EQ(first.code(), Code::ok);
  EXPECT_EQ(second.code(), Code::cancelled);
  m.run_workers();
  EXPECT_EQ(third.code(), Code::ok);
}

// The second request must wait again, because an extent was taken away since the request became
// ready. The third one prepares while it waits.
TEST(MoverSteps, whoever_is_next_to_prepare_is_asked_when_the_one_before_it_waits_again) {
  M m;
  const Handle read = m.buffer();
  m.write(read, 0x11);
  const Call& first = m.acquire(m.buffer(), kDiscard);
  const Call& second = m.acquire({M::access(read, kRead), M::access(m.buffer(), kDiscard)});
  const Call& third = m.acquire(m.buffer(), kDiscard);
  EXPECT_EQ(m.ask(RequestKind::discard, {M::access(read, kDiscard)}).code(), Code::ok);
  ASSERT_EQ(m.workers.jobs.size(), 1u);
  m.workers.run();
  m.settle();
  EXPECT_EQ(first.code(), Code::ok);
  ASSERT_EQ(m.workers.jobs.size(), 2u) << "what the second reads, and what the third overwrites";
  m.workers.run(1);
  m.settle();
  EXPECT_EQ(third.code(), Code::ok);
  EXPECT_FALSE(second.done());
  m.run_workers();
  EXPECT_EQ(second.code(), Code::ok);
}

// ---- Mapped extents that leave

// Some pages of the extent are in memory and are to be written, which always fails. A request for
// another page is still answered, because that page can be read.
TEST(MoverSteps, who_waits_for_other_pages_gets_them_when_those_there_cannot_be_written) {
  M m({.parts = true});
  const Handle x = mapped_and_written(m);
  m.evict(x);
  m.touch(x, 0, true);
  m.end_all();
  ASSERT_EQ(m.extent(x).parts, 1u);
  std::memset(m.window(x), 0x22, kSmallestExtent);
  m.host.written(m.window(x));

  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  const Call& reader = m.touch(x, 2);
  for (int tries = 0; tries < 3; ++tries) {
    ASSERT_TRUE(m.port.requests.at(0).write);
    m.end_io(EIO);
    EXPECT_FALSE(reader.done());
  }
  m.end_all();  // The absent pages are to be read for another slot, and no slot is free.
  EXPECT_EQ(evict.code(), Code::io_error) << evict.request.status.message();
  EXPECT_EQ(reader.code(), Code::ok) << reader.request.status.message();
  EXPECT_EQ(m.stats().io_retries, 2u) << "of the write";
  EXPECT_EQ(m.extent(x).parts, 5u);
  EXPECT_EQ(m.window(x)[0], std::byte{0x22});
  EXPECT_EQ(m.window(x)[2 * kSmallestExtent], std::byte{0x11});
}

TEST(MoverSteps, what_is_fetched_ahead_comes_after_it_was_written_down_as_asked) {
  M m;
  const Handle x = mapped_and_written(m);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  ASSERT_EQ(m.workers.waiting(kWithdraw), 1u);
  const Call& ahead = m.ask(RequestKind::prefetch, {M::access(x, kRead)});
  m.run_workers();
  EXPECT_FALSE(ahead.done());
  ASSERT_EQ(m.port.requests.size(), 1u);
  m.end_io();
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.port.writes, 1u);
  EXPECT_EQ(m.stats().recalled, 0u);
  m.end_all();
  EXPECT_EQ(ahead.code(), Code::ok);
  EXPECT_EQ(m.port.reads, 1u);
  EXPECT_TRUE(m.resident(x));
}

TEST(MoverSteps, a_touch_calls_back_what_was_asked_to_leave) {
  M m;
  const Handle x = mapped_and_written(m);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  const Call& touch = m.touch(x, 3);
  m.end_all();
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(m.stats().recalled, 1u);
  EXPECT_EQ(m.port.writes, 0u);
  EXPECT_EQ(m.window(x)[M::kExtent - 1], std::byte{0x11});
}

// Pages that the program has locked are left alone for ten milliseconds. The mover asks for the
// step that tries again.
TEST(MoverSteps, what_is_page_locked_is_tried_again_after_ten_milliseconds) {
  M m({.frames = 1});
  const Handle locked = m.mapped(), wanted = m.buffer();
  m.touch(locked, 0);
  m.end_all();
  m.dice.fail("withdraw");
  const Call& call = m.acquire(wanted, kWrite);
  ASSERT_EQ(m.workers.waiting(kWithdraw), 1u);
  m.workers.run();
  m.settle();
  EXPECT_EQ(m.stats().withdrawals_refused, 1u);
  EXPECT_TRUE(m.workers.jobs.empty());
  EXPECT_EQ(m.next, m.now + 10 * M::kMs);
  m.at(m.now + 10 * M::kMs - 1);
  EXPECT_TRUE(m.workers.jobs.empty());
  m.at(m.now + 1);
  EXPECT_EQ(m.workers.waiting(kWithdraw), 1u);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok);
}

TEST(MoverSteps, what_stays_page_locked_is_waited_for_ten_seconds_and_not_for_ever) {
  M m({.frames = 1});
  const Handle locked = m.mapped();
  m.touch(locked, 0);
  m.end_all();
  m.dice.fail("withdraw", ~0u);
  const std::int64_t began = m.now;
  const Call& call = m.acquire(m.buffer(), kWrite);
  m.end_all();
  while (!call.done() && m.now < began + 20'000 * M::kMs) {
    ASSERT_LE(m.next, m.now + 10 * M::kMs);
    m.at(m.next);
    m.end_all();
  }
  EXPECT_EQ(call.code(), Code::no_capacity);
  EXPECT_GE(m.now, began + 10'000 * M::kMs);
  EXPECT_LE(m.now, began + 10'020 * M::kMs);
}

// The withdrawal is refused once and succeeds soon after. The next refusal starts a new wait of ten
// seconds.
TEST(MoverSteps, what_was_page_locked_long_ago_does_not_shorten_the_next_wait) {
  M m({.frames = 1});
  for (const std::int64_t ms : {0, 20'000}) {
    m.now += ms * M::kMs;
    const Handle locked = m.mapped();
    m.touch(locked, 0);
    m.end_all();
    m.dice.fail("withdraw");
    const Call& call = m.acquire(m.buffer(), kRead);
    m.end_all();
    ASSERT_FALSE(call.done());
    m.at(m.next);
    m.end_all();
    ASSERT_EQ(call.code(), Code::ok) << call.request.status.message();
    ASSERT_EQ(m.residency.release(call.views), Code::ok);
  }
}

// ---- Devices

// Nothing is in progress, and no other event will come. The mover must ask for the step after the
// pause.
TEST(MoverSteps, the_step_after_the_pause_of_a_device_is_asked_for) {
  M m({.frames = 2, .devices = 1, .on_device = 1, .disks = 0});
  const Handle there = m.buffer();
  m.write_on_device(there, 0x11);
  m.dice.fail("copy_out", 2);
  const Call& call = m.acquire(m.buffer(), kWrite, kGpu);
  m.end_all();
  EXPECT_FALSE(call.done());
  EXPECT_EQ(m.next, m.now + 10 * M::kMs);
  m.at(m.next - 1);
  EXPECT_TRUE(m.workers.jobs.empty());
  m.at(m.next);
  m.end_all();  // The second failure doubles the pause.
  EXPECT_FALSE(call.done());
  EXPECT_EQ(m.next, m.now + 20 * M::kMs);
  m.at(m.next);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok) << call.request.status.message();
  EXPECT_EQ(m.value(there), 0x11);
}

// A request for a device's memory does not wait for a trim of the host's memory.
TEST(MoverSteps, a_release_does_not_wait_for_the_host_to_give_memory_back) {
  constexpr std::uint64_t kSmall = M::kExtent / 2;
  M m({.frames = 4, .devices = 1, .on_device = 1, .disks = 0});
  const Handle elsewhere = m.buffer(), wanted = m.buffer();
  std::vector<Handle> small;
  for (int i = 0; i < 8; ++i) {
    small.push_back(m.buffer(1, 0, kSmall));
    m.write(small.back(), 0x11);
  }
  for (const Handle each : small) {
    EXPECT_EQ(m.free(each).code(), Code::ok);
  }
  const Call& call = m.acquire(wanted, kWrite);
  ASSERT_EQ(m.workers.waiting(kTrim), 1u);
  EXPECT_EQ(m.ask(RequestKind::release_memory, {M::access(elsewhere, kRead, kGpu)}).code(),
            Code::ok);
  EXPECT_FALSE(call.done());
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok);
}

// ---- Memory

// Each request that waits for a transfer uses a record, and the next one reuses it.
TEST(MoverSteps, who_waits_takes_no_memory_that_is_not_used_again) {
  M m({.frames = 1});
  const Handle x = m.cold(0x11);
  const auto read_from_slot = [&](unsigned times) {
    for (; times > 0; --times) {
      EXPECT_EQ(m.value(x), 0x11);
      m.evict(x);
      m.forget_calls();
    }
  };
  read_from_slot(100);
  const std::uint64_t live = arena_stats().live;
  read_from_slot(1000);
  EXPECT_LE(arena_stats().live, live + 4096);
}

// ---- Advice

/// Returns which of three extents leave, one after the other, after advice about one of them.
std::vector<unsigned> leave_after(Advice advice, std::uint64_t value, unsigned advised) {
  M m({.frames = 3});
  std::vector<Handle> all;
  for (unsigned char i = 0; i < 3; ++i) {
    all.push_back(m.buffer());
    m.write(all.back(), i);
  }
  Call& call = m.prepare(RequestKind::advise, {M::access(all[advised], kRead)});
  call.request.advice = advice;
  call.request.value = value;
  m.post(call);
  m.end_all();
  EXPECT_EQ(call.code(), Code::ok);
  std::vector<unsigned> left;
  for (unsigned char round = 0; round < 2; ++round) {
    m.write(m.buffer(), 9);
    for (unsigned i = 0; i < 3; ++i) {
      if (!m.resident(all[i]) && std::find(left.begin(), left.end(), i) == left.end()) {
        left.push_back(i);
      }
    }
  }
  return left;
}

TEST(MoverSteps, extent_that_was_advised_as_cold_leaves_first_and_one_to_keep_stays) {
  for (const unsigned advised : {0u, 1u, 2u}) {
    const std::vector<unsigned> cold = leave_after(Advice::cold, 0, advised);
    ASSERT_FALSE(cold.empty());
    EXPECT_EQ(cold.front(), advised);
    const std::vector<unsigned> kept = leave_after(Advice::keep, 1, advised);
    EXPECT_EQ(std::count(kept.begin(), kept.end(), advised), 0) << advised;
  }
}

}  // namespace
}  // namespace tiermem

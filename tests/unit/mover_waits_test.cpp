// Requests that wait, step by step: for room, for pins, for transfers. The tests check which
// request is first, which is woken, when a deadline or a cancel is answered, and what remains
// afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/pattern.hpp"
#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

constexpr Place kGpu{Kind::gpu, 0};

// ---- Deadlines and cancels

TEST(MoverWaits, a_read_that_is_late_is_answered_at_its_deadline_and_serves_the_next) {
  M m;
  const Handle x = m.cold(0x11);
  Call& late = m.prepare(RequestKind::acquire, {M::access(x, kRead)});
  late.request.deadline_ns = m.now + 5 * M::kMs;
  m.post(late);
  m.settle();
  ASSERT_EQ(m.port.requests.size(), 1u);
  EXPECT_EQ(m.next, late.request.deadline_ns);
  m.at(late.request.deadline_ns - 1);
  EXPECT_FALSE(late.done());
  m.at(late.request.deadline_ns);
  EXPECT_EQ(late.code(), Code::timed_out);
  EXPECT_SAYS(late.request.status, "1 of 1 extents");
  EXPECT_EQ(m.next, Mover::kNever);

  const Call& next = m.acquire(x, kRead);
  EXPECT_EQ(m.port.requests.size(), 1u) << "it is read once";
  m.end_all();
  EXPECT_EQ(next.code(), Code::ok);
  EXPECT_EQ(m.stats().io_errors, 0u);
}

TEST(MoverWaits, the_next_deadline_is_asked_for_when_the_first_is_over) {
  M m;
  const Handle x = m.cold(0x11);
  std::vector<Call*> calls;
  for (const std::int64_t ms : {7, 3, 5}) {
    calls.push_back(&m.prepare(RequestKind::acquire, {M::access(x, kRead)}));
    calls.back()->request.deadline_ns = m.now + ms * M::kMs;
    m.post(*calls.back());
  }
  m.settle();
  const std::int64_t began = m.now;
  for (const std::int64_t ms : {3, 5, 7}) {
    ASSERT_EQ(m.next, began + ms * M::kMs);
    m.at(m.next);
  }
  EXPECT_EQ(m.next, Mover::kNever);
  for (const Call* call : calls) {
    EXPECT_EQ(call->code(), Code::timed_out);
    EXPECT_EQ(call->answers, 1u);
  }
}

TEST(MoverWaits, a_wait_for_room_that_is_late_names_who_holds_it_and_gives_back_what_it_has) {
  M m({.frames = 2});
  const Handle held = m.buffer();
  const Call& holder = m.acquire(held, kWrite);
  m.end_all();
  ASSERT_EQ(holder.code(), Code::ok);
  Call& late = m.prepare(RequestKind::acquire,
                         {M::access(m.buffer(), kWrite), M::access(m.buffer(), kWrite)});
  late.request.deadline_ns = m.now + 5 * M::kMs;
  m.post(late);
  m.settle();
  EXPECT_EQ(m.host.usage().in_use, 2 * M::kExtent) << "one of its two frames is reserved";
  m.at(late.request.deadline_ns);
  EXPECT_EQ(late.code(), Code::no_capacity);
  ASSERT_NE(late.request.status.info(), nullptr);
  EXPECT_EQ(late.request.status.info()->pinned, M::kExtent);
  EXPECT_SAYS(late.request.status, "most by 'buffer'");
  EXPECT_EQ(m.host.usage().in_use, M::kExtent);
  EXPECT_TRUE(m.mover.idle());
}

TEST(MoverWaits, a_read_that_is_cancelled_is_answered_at_once_and_its_bytes_come) {
  M m;
  const Handle x = m.cold(0x11);
  Call& call = m.acquire(x, kRead);
  std::atomic<bool> of_an_operation{false};
  Call& part = m.prepare(RequestKind::acquire, {M::access(x, kRead)});
  part.request.cancel_with = &of_an_operation;
  m.post(part);
  m.settle();
  m.cancel(call);
  m.settle();
  EXPECT_EQ(call.code(), Code::cancelled);
  EXPECT_FALSE(part.done());
  of_an_operation = true;
  m.mover.note_cancel();
  m.step();
  EXPECT_EQ(part.code(), Code::cancelled);
  m.end_all();
  EXPECT_TRUE(m.resident(x));
  EXPECT_FALSE(m.bits(x).pinned());
}

// The request is cancelled while its frame is being prepared. The extent and the memory return to
// their former state.
TEST(MoverWaits, what_was_to_be_overwritten_is_as_it_was_when_the_writer_has_given_up) {
  M m;
  const Handle x = m.cold(0x11);
  const std::uint64_t in_use = m.host.usage().in_use;
  Call& call = m.acquire({M::access(x, kDiscard), M::access(m.buffer(), kDiscard)});
  ASSERT_FALSE(m.workers.jobs.empty());
  m.cancel(call);
  m.settle();
  EXPECT_EQ(call.code(), Code::cancelled);
  m.end_all();
  EXPECT_EQ(m.host.usage().in_use, in_use);
  EXPECT_EQ(m.bits(x).phase(), Phase::none);
  EXPECT_EQ(m.value(x), 0x11);
}

// This includes the next handle to be created: its record is blank, and does not itself say that it
// is unused.
TEST(MoverWaits, a_handle_that_was_never_given_out_is_stale) {
  M m;
  const Handle x = m.buffer();
  for (const Handle handle : {Handle{0}, Handle{Buffers::index_of(x) + 2}, Handle{1} << 32 | 99}) {
    Span span;
    EXPECT_EQ(m.residency.resolve(M::access(handle, kRead), span, "test").code(),
              Code::stale_handle)
        << handle;
  }
}

// The next extent in memory may belong to another buffer, so the advice must not apply to it.
TEST(MoverWaits, advice_is_for_the_extents_that_it_names_alone) {
  M m;
  const Handle x = m.buffer(3);
  const auto before = m.bits(x, 2).bits;
  Call& advice = m.prepare(RequestKind::advise, {{x, 0, 2 * M::kExtent, kRead, {}, 0}});
  advice.request.advice = Advice::keep;
  advice.request.value = 1;
  m.post(advice);
  m.settle();
  EXPECT_EQ(advice.code(), Code::ok);
  EXPECT_NE(m.bits(x, 1).bits, before);
  EXPECT_EQ(m.bits(x, 2).bits, before);
}

TEST(MoverWaits, advice_is_about_the_order_then_extents_that_have_not_begun_keep_their_words) {
  M m;
  const Handle x = m.buffer(3);
  const auto before = m.bits(x, 1).bits;
  for (const Advice advice : {Advice::cold, Advice::normal, Advice::will_need, Advice::touched}) {
    Call& call = m.prepare(RequestKind::advise, {{x, 0, 3 * M::kExtent, kRead, {}, 0}});
    call.request.advice = advice;
    m.post(call);
    m.settle();
    EXPECT_EQ(call.code(), Code::ok);
    EXPECT_EQ(m.bits(x, 1).bits, before);
  }
}

// ---- Order of requests

TEST(MoverWaits, room_goes_to_the_oldest_though_a_later_one_would_fit) {
  M m({.frames = 2});
  const Call& holder = m.acquire(m.buffer(), kWrite);
  m.end_all();
  ASSERT_EQ(holder.code(), Code::ok);
  Call& large = m.acquire({M::access(m.buffer(), kWrite), M::access(m.buffer(), kWrite)});
  const Call& small = m.acquire(m.buffer(), kWrite);
  m.end_all();
  EXPECT_FALSE(large.done());
  EXPECT_FALSE(small.done());
  m.cancel(large);
  m.end_all();
  EXPECT_EQ(large.code(), Code::cancelled);
  EXPECT_EQ(small.code(), Code::ok);
}

TEST(MoverWaits, those_who_wait_for_one_read_are_answered_in_the_order_in_which_they_came) {
  M m;
  const Handle x = m.cold(0x11);
  std::vector<const Call*> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(&m.acquire(x, kRead));
  }
  m.end_all();
  EXPECT_LT(calls[0]->turn, calls[1]->turn);
  EXPECT_LT(calls[1]->turn, calls[2]->turn);
}

// Each overwritten extent has one pin, and none after the view is released.
TEST(MoverWaits, each_extent_of_what_is_overwritten_is_pinned_once) {
  M m;
  const Handle x = m.buffer(2);
  Call& call = m.acquire(x, kDiscard);
  m.end_all();
  ASSERT_EQ(call.code(), Code::ok);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(m.bits(x, i).writers(), 1u);
  }
  m.release(call);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(m.bits(x, i).pinned());
  }
}

TEST(MoverWaits, a_release_wakes_the_mover_only_while_somebody_waits_for_it) {
  M m({.frames = 1});
  const Handle x = m.buffer();
  Call& holder = m.acquire(x, kWrite);
  m.end_all();
  const std::uint64_t steps = m.steps;
  m.release(holder);
  EXPECT_EQ(m.steps, steps);

  Call& again = m.acquire(x, kWrite);
  const Call& waits = m.acquire(m.buffer(), kWrite);
  m.end_all();
  ASSERT_FALSE(waits.done());
  m.release(again);
  EXPECT_GT(m.steps, steps);
  m.end_all();
  EXPECT_EQ(waits.code(), Code::ok);
}

// After a request has waited, a little memory is freed before the next request asks, and no more
// than that.
TEST(MoverWaits, after_a_wait_for_room_some_is_freed_ahead_of_the_next) {
  constexpr std::uint64_t kFrames = 32, kAhead = 2;
  M m({.frames = kFrames, .ahead = kAhead});
  const auto free = [&] { return (kFrames * M::kExtent - m.host.usage().in_use) / M::kExtent; };
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    m.write(m.buffer(), 0x11);
  }
  ASSERT_EQ(free(), 0u);
  EXPECT_EQ(m.port.writes, 0u);
  m.write(m.buffer(), 0x22);  // Waits for room.
  for (int i = 0; i < 4; ++i) {
    m.write(m.buffer(), 0x33);
    EXPECT_GE(free(), kAhead - 1) << "the next need not wait";
    EXPECT_LE(free(), kAhead + 1);
  }
}

TEST(MoverWaits, what_can_never_fit_is_refused_at_once) {
  M m({.frames = 2});
  std::vector<Access> three;
  for (int i = 0; i < 3; ++i) {
    three.push_back(M::access(m.buffer(), kRead));
  }
  const Call& call = m.acquire(three);
  EXPECT_EQ(call.code(), Code::no_capacity);
  ASSERT_NE(call.request.status.info(), nullptr);
  EXPECT_EQ(call.request.status.info()->needed, 3 * M::kExtent);
  EXPECT_TRUE(m.mover.idle());
}

// There is no block tier, nothing is pinned, and nothing can leave. No event could ever answer the
// request.
TEST(MoverWaits, what_has_no_room_and_nothing_to_wait_for_is_refused) {
  M m({.frames = 2, .disks = 0});
  m.write(m.buffer(), 0x11);
  m.write(m.buffer(), 0x22);
  const Call& call = m.acquire(m.buffer(), kWrite);
  EXPECT_EQ(call.code(), Code::no_capacity);
  EXPECT_SAYS(call.request.status, "there is no block tier to write to");
}

// ---- Extents that are given up

// A discard that is refused because the extent is pinned changes nothing: the bytes are written
// when the extent leaves.
TEST(MoverWaits, a_discard_that_is_refused_gives_up_no_byte) {
  M m({.frames = 1});
  const Handle x = m.buffer();
  m.write(x, 0x11);
  Call& reader = m.acquire(x, kRead);
  ASSERT_EQ(reader.code(), Code::ok);
  EXPECT_EQ(m.ask(RequestKind::discard, {M::access(x, kDiscard)}).code(), Code::busy);
  m.release(reader);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);

  // Now clean, and in a slot.
  Call& again = m.acquire(x, kRead);
  ASSERT_EQ(again.code(), Code::ok);
  EXPECT_EQ(m.ask(RequestKind::discard, {M::access(x, kDiscard)}).code(), Code::busy);
  m.release(again);
  m.evict(x);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverWaits, a_discard_gives_frame_and_slot_back_and_reads_as_zeros) {
  M m;
  const Handle x = m.cold(0x11);
  EXPECT_EQ(m.value(x), 0x11);
  EXPECT_EQ(m.block.usage().in_use, M::kExtent);
  EXPECT_EQ(m.ask(RequestKind::discard, {M::access(x, kDiscard)}).code(), Code::ok);
  EXPECT_EQ(m.block.usage().in_use, 0u);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  EXPECT_EQ(m.value(x), 0);
}

TEST(MoverWaits, who_waits_for_a_buffer_that_is_freed_is_told_and_the_free_waits_for_views) {
  M m({.frames = 2});
  const Handle x = m.cold(0x11, 2);
  Call& view = m.acquire({M::extent_access(x, 0, kRead)});
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  const Call& reader = m.acquire({M::extent_access(x, 1, kRead)});
  ASSERT_EQ(m.port.requests.size(), 1u);
  const Call& freed = m.free(x);
  EXPECT_EQ(reader.code(), Code::stale_handle);
  m.end_all();
  EXPECT_FALSE(freed.done());
  EXPECT_GT(m.block.usage().in_use, 0u);
  m.release(view);
  m.end_all();
  EXPECT_EQ(freed.code(), Code::ok);
  EXPECT_EQ(m.block.usage().in_use, 0u);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  EXPECT_EQ(m.host.windows(), 0u);
}

TEST(MoverWaits, who_asks_where_bytes_are_is_told_that_they_move_or_are_lost) {
  using State = Whereabouts::State;
  M m;
  const Handle x = m.cold(0x11);
  const auto where = [&] {
    Whereabouts answer;
    Call& call = m.prepare(RequestKind::where, {M::access(x, kRead)});
    call.request.where = &answer;
    m.post(call);
    m.settle();
    EXPECT_EQ(call.code(), Code::ok);
    return answer.state;
  };
  EXPECT_EQ(where(), State::in_slot);
  Call& reader = m.acquire(x, kRead);
  EXPECT_EQ(where(), State::moving);
  m.run_workers();
  for (int reads = 0; reads < 2; ++reads) {
    ASSERT_EQ(m.port.requests.size(), 1u);
    m.port.end_with_damage();
    m.run_workers();
  }
  EXPECT_EQ(reader.code(), Code::lost);
  EXPECT_EQ(where(), State::lost);
  Call& again = m.acquire(x, kDiscard);
  m.end_all();
  ASSERT_EQ(again.code(), Code::ok);
  EXPECT_EQ(where(), State::resident);
}

// The caller has resolved the request, and the mover has not yet processed it.
TEST(MoverWaits, a_request_whose_buffer_is_freed_on_its_way_names_it_and_touches_nobody_elses) {
  for (const RequestKind want :
       {RequestKind::acquire, RequestKind::prefetch, RequestKind::evict, RequestKind::clean,
        RequestKind::discard, RequestKind::where, RequestKind::move_slots}) {
    M m;
    const Handle x = m.cold(0x11), other = m.buffer();
    Call& call =
        want == RequestKind::move_slots
            ? m.prepare(want, {M::access(x, kRead), M::access(other, kRead)})
            : m.prepare(want, {M::access(x, want == RequestKind::discard ? kDiscard : kRead)});
    m.free(x);
    m.end_all();
    const Handle next = m.cold(0x22);
    ASSERT_EQ(Buffers::index_of(next), Buffers::index_of(x)) << "it has the record";
    m.post(call);
    m.end_all();
    EXPECT_EQ(call.code(), Code::stale_handle) << "want " << static_cast<int>(want);
    EXPECT_SAYS(call.request.status, fmt::format("handle {:#x} was freed", x).c_str());
    EXPECT_EQ(m.value(next), 0x22);
  }
}

TEST(MoverWaits, a_free_is_not_to_be_cancelled) {
  M m;
  const Handle x = m.buffer();
  Call& view = m.acquire(x, kRead);
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  Call& freed = m.free(x);
  m.cancel(freed);
  m.settle();
  EXPECT_FALSE(freed.done());
  m.release(view);
  m.end_all();
  EXPECT_EQ(freed.code(), Code::ok);
}

TEST(MoverWaits, evict_of_what_is_pinned_or_wanted_says_so_and_leaves_it) {
  M m;
  const Handle x = m.buffer();
  Call& view = m.acquire(x, kRead);
  m.end_all();
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(evict.code(), Code::busy);
  EXPECT_SAYS(evict.request.status, "is pinned by a view");
  m.release(view);
  // The other extent of this request has not arrived yet.
  const Call& both = m.acquire({M::access(x, kRead), M::access(m.buffer(), kRead)});
  const Call& wanted = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(wanted.code(), Code::busy);
  EXPECT_SAYS(wanted.request.status, "is wanted by a request");
  m.end_all();
  EXPECT_EQ(both.code(), Code::ok);
}

// ---- Budgets

TEST(MoverWaits, a_smaller_budget_is_met_by_evicting_and_one_that_is_late_is_taken_back) {
  M m({.frames = 3});
  std::vector<Handle> three;
  for (unsigned char i = 0; i < 3; ++i) {
    three.push_back(m.buffer());
    m.write(three.back(), i);
  }
  Call& smaller = m.set_budget(2 * M::kExtent);
  const Call& another = m.set_budget(M::kExtent);
  EXPECT_EQ(another.code(), Code::busy);
  EXPECT_FALSE(smaller.done());
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok);
  EXPECT_LE(m.host.usage().used(), 2 * M::kExtent);

  std::vector<Call*> views;
  for (const Handle each : three) {
    if (m.resident(each)) {
      views.push_back(&m.acquire(each, kRead));
    }
  }
  ASSERT_EQ(views.size(), 2u);
  Call& late = m.prepare(RequestKind::set_budget);
  late.request.value = M::kExtent;
  late.request.deadline_ns = m.now + 5 * M::kMs;
  m.post(late);
  m.settle();
  EXPECT_EQ(m.host.usage().budget, M::kExtent);
  m.at(late.request.deadline_ns);
  EXPECT_EQ(late.code(), Code::no_capacity);
  EXPECT_EQ(m.host.usage().budget, 2 * M::kExtent);
}

// The driver refused memory, so the device made do with less. A change of its budget that is late
// goes back to the whole one.
TEST(MoverWaits, late_budget_of_a_device_short_of_memory_goes_back_to_the_one_before_the_shortage) {
  M m({.devices = 1, .on_device = 3});
  const Call& held = m.acquire(m.buffer(), kWrite, kGpu);
  m.end_all();
  ASSERT_EQ(held.code(), Code::ok);
  m.dice.fail("populate");
  Call& waits = m.prepare(RequestKind::acquire, {M::access(m.buffer(), kWrite, kGpu)});
  waits.request.deadline_ns = m.now + 10 * M::kMs;
  m.post(waits);
  m.end_all();
  ASSERT_EQ(m.gpu[0].usage().budget, M::kExtent) << "as much as it has";
  m.at(waits.request.deadline_ns);
  ASSERT_EQ(waits.code(), Code::no_capacity);
  const Call& late = m.late_budget(0, kGpu);
  EXPECT_EQ(late.code(), Code::no_capacity);
  EXPECT_EQ(m.gpu[0].usage().budget, 3 * M::kExtent);
}

TEST(MoverWaits, a_budget_is_met_in_the_step_in_which_a_pin_falls) {
  M m({.frames = 2});
  Call& view = m.acquire(m.buffer(), kRead);
  const Call& other = m.acquire(m.buffer(), kRead);
  m.end_all();
  ASSERT_EQ(other.code(), Code::ok);
  const Call& budget = m.set_budget(M::kExtent);
  EXPECT_FALSE(budget.done());
  m.release(view);
  EXPECT_EQ(budget.code(), Code::ok);
}

TEST(MoverWaits, a_budget_of_a_device_that_is_late_names_the_device) {
  M m({.devices = 1, .on_device = 2});
  const Call& view = m.acquire({M::access(m.buffer(), kWrite, kGpu)});
  const Call& other = m.acquire({M::access(m.buffer(), kWrite, kGpu)});
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  ASSERT_EQ(other.code(), Code::ok);
  const Call& late = m.late_budget(M::kExtent, kGpu);
  ASSERT_EQ(late.code(), Code::no_capacity);
  EXPECT_EQ(late.request.status.info()->tier, kGpu);
  EXPECT_EQ(late.request.status.info()->needed, M::kExtent);
  EXPECT_EQ(m.gpu[0].usage().budget, 2 * M::kExtent);
}

// ---- Closing

TEST(MoverWaits, a_drain_ends_what_waits_and_waits_for_what_is_under_way) {
  M m;
  const Call& reader = m.acquire(m.cold(0x11), kRead);
  ASSERT_EQ(m.port.requests.size(), 1u);
  const Call& drain = m.ask(RequestKind::drain);
  EXPECT_EQ(reader.code(), Code::shut_down);
  EXPECT_FALSE(drain.done());
  m.end_all();
  EXPECT_EQ(drain.code(), Code::ok);
}

TEST(MoverWaits, a_list_that_writes_in_two_spaces_is_wrong) {
  M m({.devices = 1});
  const Handle x = m.buffer();
  EXPECT_EQ(m.acquire({M::access(x, kRead), M::access(x, kWrite, kGpu)}).code(),
            Code::invalid_argument);
  EXPECT_EQ(m.acquire({M::access(x, kWrite), M::access(x, kRead, kGpu)}).code(),
            Code::invalid_argument);
  const Call& reads = m.acquire({M::access(x, kRead), M::access(x, kRead, kGpu)});
  m.end_all();
  EXPECT_EQ(reads.code(), Code::ok);
}

TEST(MoverWaits, without_memory_for_records_frees_and_touches_go_on_and_all_else_is_refused) {
  M m;
  const Handle x = m.buffer(), mapped = m.mapped();
  m.write(x, 0x11);
  m.mover.note_memory(false);
  const Call& refused = m.acquire(m.buffer(), kRead);
  EXPECT_EQ(refused.code(), Code::no_capacity);
  ASSERT_NE(refused.request.status.info(), nullptr);
  EXPECT_EQ(refused.request.status.info()->native, ENOMEM);
  EXPECT_EQ(m.ask(RequestKind::prefetch, {M::access(x, kRead)}).code(), Code::ok);
  EXPECT_EQ(m.ask(RequestKind::evict, {M::access(x, kRead)}).code(), Code::no_capacity);
  EXPECT_TRUE(m.resident(x));
  const Call& touch = m.touch(mapped, 0);
  const Call& freed = m.free(x);
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(freed.code(), Code::ok);
  m.mover.note_memory(true);
  const Call& served = m.acquire(m.buffer(), kRead);
  m.end_all();
  EXPECT_EQ(served.code(), Code::ok);
}

// ---- Prefetches

TEST(MoverWaits, no_more_is_fetched_ahead_at_once_than_the_limit) {
  M m({.frames = 8, .prefetches = 1});
  const Handle x = m.cold(0x11, 3);
  const Call& ahead = m.ask(RequestKind::prefetch, {M::access(x, kRead)});
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(m.port.requests.size(), 1u);
    EXPECT_FALSE(ahead.done());
    m.end_io();
  }
  EXPECT_EQ(ahead.code(), Code::ok);
  EXPECT_EQ(m.stats().prefetched, 3 * M::kExtent);
}

TEST(MoverWaits, what_was_never_written_is_not_fetched_ahead_and_what_fails_is_no_error) {
  M m;
  const Handle zero = m.buffer(), x = m.cold(0x11);
  EXPECT_EQ(m.ask(RequestKind::prefetch, {M::access(zero, kRead)}).code(), Code::ok);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  const Call& ahead = m.ask(RequestKind::prefetch, {M::access(x, kRead)});
  m.end_io(EIO);
  EXPECT_FALSE(ahead.done());
  m.end_io(EIO);
  EXPECT_EQ(ahead.code(), Code::ok);
  EXPECT_EQ(m.host.usage().in_use, 0u);
  EXPECT_EQ(m.value(x), 0x11);
}

// Prefetched extents that are not yet used take at most half of the memory. A prefetched extent is
// not a victim before its use.
TEST(MoverWaits, what_is_fetched_ahead_takes_half_of_the_memory_and_waits_for_its_use) {
  M m({.frames = 4, .prefetches = 1});
  const Handle x = m.cold(0x11, 4);
  EXPECT_FALSE(m.ask(RequestKind::prefetch, {M::access(x, kRead)}).done());
  m.end_all();
  unsigned there = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    there += m.resident(x, i) ? 1 : 0;
  }
  EXPECT_EQ(there, 2u);
  for (unsigned char i = 0; i < 4; ++i) {
    m.write(m.buffer(), i);
  }
  EXPECT_TRUE(m.resident(x, 0));
  EXPECT_TRUE(m.resident(x, 1));
  EXPECT_EQ(m.stats().prefetched_unused, 0u);
}

}  // namespace
}  // namespace tiermem

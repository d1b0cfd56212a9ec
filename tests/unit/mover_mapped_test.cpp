// Mapped buffers, step by step: extents that leave their window or are recalled, extents that are
// resident in parts, and pages that are given up.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

// Returns a mapped extent with these bytes that is whole and in its window.
Handle in_window(M& m, unsigned char value) {
  const Handle x = m.mapped();
  m.touch(x, 0);
  m.end_all();
  std::memset(m.window(x), value, M::kExtent);
  return x;
}

// Returns an extent that is only in a slot.
Handle in_slot(M& m, unsigned char value) {
  const Handle x = in_window(m, value);
  m.evict(x);
  return x;
}

// Writes a page as the program does.
void write_page(M& m, Handle x, unsigned page, unsigned char value) {
  std::byte* const at = m.window(x) + page * kSmallestExtent;
  ASSERT_TRUE(m.host.present(at)) << "page " << page << " is not there";
  std::memset(at, value, kSmallestExtent);
  m.host.written(at);
}

int page_value(M& m, Handle x, unsigned page) {
  std::byte* const at = m.window(x) + page * kSmallestExtent;
  return m.host.present(at) ? static_cast<int>(*at) : -1;
}

// ---- Recalled

/// Returns an extent in a slot, with its first and third page in memory.
Handle two_pages_there(M& m) {
  const Handle x = in_slot(m, 0x11);
  for (const unsigned page : {0u, 2u}) {
    m.touch(x, page);
    m.end_all();
  }
  return x;
}

TEST(MoverMapped, what_leaves_to_make_room_and_is_touched_meanwhile_stays_and_frees_nothing) {
  M m({.frames = 2});
  const Handle x = in_window(m, 0x11), y = in_window(m, 0x22);
  const Call& wants = m.acquire(m.buffer(), kWrite);
  ASSERT_EQ(m.workers.waiting(kWithdraw), 1u);
  const Handle leaves = m.bits(x).phase() == Phase::outgoing ? x : y;
  const Handle stays = leaves == x ? y : x;
  const Call& touch = m.touch(leaves, 0);
  m.workers.run();  // Withdrawn.
  m.settle();
  m.workers.run_step(kRestore);  // Some frames are restored by the step itself.
  m.settle();
  EXPECT_EQ(m.stats().recalled, 1u);
  EXPECT_EQ(page_value(m, leaves, 0), leaves == x ? 0x11 : 0x22) << "it goes on here";
  EXPECT_EQ(m.port.writes, 0u);
  // The other extent leaves in its place.
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(wants.code(), Code::ok);
  EXPECT_TRUE(m.resident(leaves));
  EXPECT_FALSE(m.resident(stays));
}

// The hash of the leaving extent is stopped, because it is no longer needed. The slot stays valid.
TEST(MoverMapped, called_back_while_it_is_hashed_nothing_is_written) {
  M m;
  const Handle x = in_slot(m, 0x11);
  m.touch(x, 0);
  m.end_all();
  write_page(m, x, 0, 0x22);
  const std::uint64_t writes = m.port.writes;
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.workers.run();  // Withdrawn.
  m.settle();
  ASSERT_EQ(m.workers.waiting(kHash), 1u);
  const Call& touch = m.touch(x, 1);
  EXPECT_TRUE(m.workers.jobs[0]->stop);
  m.run_workers();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.port.writes, writes);
  EXPECT_TRUE(m.port.requests.empty());
  EXPECT_FALSE(m.extent(x).copy().partial());
  EXPECT_EQ(page_value(m, x, 0), 0x22);
  EXPECT_EQ(page_value(m, x, 1), 0x11);
}

TEST(MoverMapped, called_back_while_it_is_written_it_comes_back_when_that_has_ended) {
  M m;
  const Handle x = in_window(m, 0x11);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  const Call& touch = m.touch(x, 1);
  m.run_workers();
  EXPECT_FALSE(touch.done());
  m.end_io();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_TRUE(m.resident(x));
  EXPECT_FALSE(m.extent(x).copy().partial());
  EXPECT_EQ(m.port.reads, 0u);
  EXPECT_EQ(page_value(m, x, 3), 0x11);
}

TEST(MoverMapped, what_cannot_be_written_goes_back_into_its_window_with_the_error_told) {
  M m({.disks = 2});
  const Handle x = in_window(m, 0x11);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  for (int tries = 0; tries < 3; ++tries) {
    m.end_io(EIO);
  }
  EXPECT_EQ(evict.code(), Code::io_error);
  EXPECT_TRUE(m.resident(x));
  EXPECT_EQ(page_value(m, x, 3), 0x11);
  EXPECT_EQ(m.block.usage().in_use, 0u);
}

TEST(MoverMapped, clean_writes_it_down_once_and_leaves_it_in_its_window) {
  M m;
  const Handle x = in_window(m, 0x11);
  const Call& clean = m.ask(RequestKind::clean, {M::access(x, kRead)});
  m.end_all();
  EXPECT_EQ(clean.code(), Code::ok);
  EXPECT_EQ(m.port.writes, 1u);
  EXPECT_TRUE(m.resident(x));
  EXPECT_EQ(page_value(m, x, 0), 0x11);
}

TEST(MoverMapped, evict_of_a_page_locked_extent_says_that_it_stays) {
  M m;
  const Handle x = in_window(m, 0x11);
  m.dice.fail("withdraw");
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  EXPECT_EQ(evict.code(), Code::busy);
  EXPECT_EQ(page_value(m, x, 0), 0x11);
  m.at(m.now + 10 * M::kMs);
  m.evict(x);
}

// The extent cannot be written, so evicting it frees no memory. A request that waits for this
// memory is refused in the end.
TEST(MoverMapped, who_waits_for_the_memory_of_what_cannot_be_written_is_refused_in_the_end) {
  M m({.frames = 1});
  const Handle x = in_window(m, 0x11);
  const Call& reader = m.acquire(m.buffer(), kWrite);
  unsigned rounds = 0;
  for (; !reader.done() && rounds < 500; ++rounds) {
    m.run_workers();
    if (!m.port.requests.empty()) {
      m.end_io(EIO);
    } else if (!reader.done()) {
      ASSERT_LT(m.next, Mover::kNever) << m.mover.describe();
      m.at(m.next);
    }
  }
  EXPECT_EQ(reader.code(), Code::no_capacity) << m.mover.describe();
  EXPECT_EQ(page_value(m, x, 0), 0x11);
}

// The extent is prefetched, asked to leave and touched, in this order. When it arrives, the toucher
// gets it. At the check of the evict the toucher still counts as a holder, but only for a moment,
// so the evict must not be refused.
TEST(MoverMapped, evict_leaves_a_toucher_its_moment) {
  M m;
  const Handle x = in_slot(m, 0x11);
  m.ask(RequestKind::prefetch, {M::access(x, kRead)});
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  const Call& touch = m.touch(x, 0);
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(evict.code(), Code::ok) << evict.request.status.message();
  EXPECT_FALSE(m.resident(x));
}

// ---- In parts

TEST(MoverMapped, a_touch_brings_its_page_and_the_next_touch_the_next_page) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  const std::uint64_t in_use = m.host.usage().in_use;
  for (const unsigned page : {2u, 0u}) {
    const Call& touch = m.touch(x, page);
    ASSERT_EQ(m.port.requests.size(), 1u);
    EXPECT_EQ(m.port.requests[0].length, kSmallestExtent);
    m.end_io();
    EXPECT_EQ(touch.code(), Code::ok);
    EXPECT_EQ(page_value(m, x, page), 0x11);
  }
  EXPECT_EQ(m.extent(x).parts, 5u);
  EXPECT_EQ(m.host.usage().in_use, in_use + 2 * kSmallestExtent);
  const Call& there = m.touch(x, 2);
  EXPECT_EQ(there.code(), Code::ok);
  EXPECT_TRUE(m.port.requests.empty());
}

TEST(MoverMapped, where_a_page_is_depends_on_the_page_of_an_extent_in_parts) {
  M m({.parts = true});
  const Handle x = two_pages_there(m);
  for (unsigned page = 0; page < 4; ++page) {
    Whereabouts where;
    Call& call = m.prepare(RequestKind::where, {{x, page * kSmallestExtent + 7, 1, kRead, {}, 0}});
    call.request.where = &where;
    m.post(call);
    m.settle();
    EXPECT_EQ(where.state,
              page % 2 == 0 ? Whereabouts::State::resident : Whereabouts::State::in_slot)
        << page;
  }
}

TEST(MoverMapped, an_extent_whose_last_page_has_come_is_whole) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  for (unsigned page = 0; page < 4; ++page) {
    if (page_value(m, x, page) < 0) {
      m.touch(x, page);
      m.end_all();
    }
  }
  EXPECT_TRUE(m.resident(x));
  EXPECT_EQ(m.extent(x).parts, 0u);
  EXPECT_EQ(m.value(x), 0x11);
}

// A view needs the whole extent. The absent pages are read, and the resident ones stay unchanged.
TEST(MoverMapped, a_view_brings_the_other_pages_of_an_extent_in_parts) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  m.touch(x, 1, true);
  m.end_all();
  write_page(m, x, 1, 0x22);
  Call& view = m.acquire(x, kRead);
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  EXPECT_EQ(view.data()[0], std::byte{0x11});
  EXPECT_EQ(view.data()[kSmallestExtent], std::byte{0x22});
  EXPECT_EQ(view.data()[3 * kSmallestExtent], std::byte{0x11});
  m.release(view);
}

TEST(MoverMapped, only_the_changed_pages_of_an_extent_in_parts_are_written) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  for (const unsigned page : {0u, 2u}) {
    m.touch(x, page, true);
    m.end_all();
  }
  write_page(m, x, 2, 0x22);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  ASSERT_EQ(m.port.requests.size(), 1u);
  EXPECT_EQ(m.port.requests[0].offset % M::kExtent, 2 * kSmallestExtent);
  EXPECT_EQ(m.port.requests[0].length, kSmallestExtent);
  m.end_io();
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.extent(x).parts, 0u);
  for (unsigned page = 0; page < 4; ++page) {
    m.touch(x, page);
    m.end_all();
    EXPECT_EQ(page_value(m, x, page), page == 2 ? 0x22 : 0x11);
  }
}

/// `x` has the pages 0 and 2, of which page 0 has a turn left, and is the next to leave.
struct OnePageStays : M {
  explicit OnePageStays(bool written, unsigned disks = 1)
      : M({.frames = 4, .disks = disks, .parts = true}), x(in_slot(*this, 0x11)) {
    for (const unsigned page : {0u, 2u}) {
      bring(x, page, written);
    }
    if (written) {
      write_page(*this, x, 0, 0x22);
      write_page(*this, x, 2, 0x44);
    }
    const Handle y = in_slot(*this, 0x33);
    for (const unsigned page : {0u, 1u, 3u}) {
      bring(y, page);
    }
    EXPECT_EQ(extent(x).parts, 0b101u);
    levels(x).pages[0].turns = 1;
  }
  void bring(Handle handle, unsigned page, bool writes = false) {
    touch(handle, page, writes);
    end_all();
  }
  /// One page must leave.
  void lower_budget() { (void)set_budget(host.usage().in_use - kSmallestExtent); }
  const Handle x;
};

TEST(MoverMapped, a_page_with_a_turn_left_stays_when_the_others_leave) {
  for (const bool written : {false, true}) {
    OnePageStays m(written);
    m.lower_budget();
    m.end_all();
    EXPECT_EQ(m.extent(m.x).parts, 0b001u) << written;
    EXPECT_EQ(m.levels(m.x).pages[0].turns, 0u) << "it has used it";
    EXPECT_EQ(page_value(m, m.x, 0), written ? 0x22 : 0x11);
    EXPECT_NE(m.levels(m.x).pages[2].stamp, 0u);
    m.bring(m.x, 2);
    EXPECT_EQ(page_value(m, m.x, 2), written ? 0x44 : 0x11);
  }
}

TEST(MoverMapped, a_page_that_leaves_alone_is_recalled) {
  OnePageStays m(true);
  m.lower_budget();
  m.settle();
  m.touch(m.x, 2);
  m.end_all();
  EXPECT_EQ(page_value(m, m.x, 2), 0x44);
  EXPECT_EQ(page_value(m, m.x, 0), 0x22);
}

// The device refuses the changed page three times. Another slot needs all pages of the extent, so
// it leaves as a whole at its next turn.
TEST(MoverMapped, pages_that_their_device_refuses_leave_with_the_others_later) {
  OnePageStays m(true, 2);
  m.lower_budget();
  m.run_workers();
  for (int tries = 0; tries < 3; ++tries) {
    ASSERT_FALSE(m.port.requests.empty());
    ASSERT_TRUE(m.port.requests[0].write);
    m.end_io(EIO);
    m.run_workers();
  }
  m.end_all();
  for (unsigned page = 0; page < 4; ++page) {
    m.bring(m.x, page);
    EXPECT_EQ(page_value(m, m.x, page), page == 0 ? 0x22 : page == 2 ? 0x44 : 0x11);
  }
}

// The device refuses the changed page three times. The other pages are read, and the whole extent
// is written to another device. If that refuses too, the extent stays unchanged.
TEST(MoverMapped, changed_pages_that_their_device_refuses_take_the_whole_extent_to_another) {
  for (const bool other_works : {true, false}) {
    M m({.disks = 2, .parts = true});
    const Handle x = in_slot(m, 0x11);
    m.touch(x, 1, true);
    m.end_all();
    write_page(m, x, 1, 0x22);
    const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
    m.run_workers();
    const std::uint16_t device = m.port.requests.at(0).device;
    for (int tries = 0; tries < 3; ++tries) {
      ASSERT_TRUE(m.port.requests.at(0).write);
      ASSERT_EQ(m.port.requests[0].device, device);
      m.end_io(EIO);
    }
    while (!m.port.requests.empty() && !m.port.requests[0].write) {
      m.end_io();
    }
    for (; !m.port.requests.empty(); m.end_io(other_works ? 0 : EIO)) {
      EXPECT_NE(m.port.requests[0].device, device);
      EXPECT_EQ(m.port.requests[0].length, M::kExtent);
    }
    EXPECT_EQ(evict.code(), other_works ? Code::ok : Code::io_error);
    EXPECT_EQ(m.extent(x).parts, other_works ? 0u : 2u);
    EXPECT_EQ(m.block.usage().in_use, M::kExtent) << "the other slot is given back";
    for (unsigned page = 0; page < 4; ++page) {
      m.touch(x, page);
      m.end_all();
      EXPECT_EQ(page_value(m, x, page), page == 1 ? 0x22 : 0x11);
    }
  }
}

// A view needs this extent and another one that has no room. When the view is refused, the room
// reserved for the extent's pages is released.
TEST(MoverMapped, room_for_the_other_pages_goes_back_with_who_waited_for_more) {
  M m({.frames = 2, .parts = true});
  const Handle x = in_slot(m, 0x11);
  const Call& holder = m.acquire(m.buffer(), kWrite);
  m.end_all();
  ASSERT_EQ(holder.code(), Code::ok);
  m.touch(x, 0);
  m.end_all();
  const std::uint64_t in_use = m.host.usage().in_use;
  Call& late =
      m.prepare(RequestKind::acquire, {M::access(x, kRead), M::access(m.buffer(), kWrite)});
  late.request.deadline_ns = m.now + 5 * M::kMs;
  m.post(late);
  m.settle();
  EXPECT_EQ(m.host.usage().in_use, in_use + 3 * kSmallestExtent);
  Call& next = m.acquire(x, kRead);
  EXPECT_FALSE(next.done()) << "they are promised to another";
  m.at(late.request.deadline_ns);
  EXPECT_EQ(late.code(), Code::no_capacity) << late.request.status.message();
  m.end_all();
  ASSERT_EQ(next.code(), Code::ok) << next.request.status.message();
  m.release(next);
  EXPECT_EQ(page_value(m, x, 0), 0x11);
  EXPECT_EQ(m.value(x), 0x11);
}

// A child reads the extent's slot, so the whole extent must go to another slot, and its absent
// pages cannot be read. The extent stays, and others leave: writes themselves work.
TEST(MoverMapped, an_extent_that_cannot_be_made_whole_stays_and_others_leave) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  m.mover.rest(true);
  m.step();
  ASSERT_TRUE(m.mover.rested());
  m.mover.parent_of_child();
  m.mover.rest(false);
  m.touch(x, 0, true);
  m.end_all();
  write_page(m, x, 0, 0x22);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.run_workers();
  while (!m.port.requests.empty()) {
    m.end_io(EIO);
  }
  EXPECT_EQ(evict.code(), Code::io_error);
  EXPECT_EQ(page_value(m, x, 0), 0x22);

  const Handle y = m.buffer();
  m.write(y, 0x33);
  m.evict(y);
  EXPECT_EQ(m.value(y), 0x33);
  m.at(m.now + 10 * M::kMs);
  m.evict(x);
  EXPECT_EQ(m.value(y), 0x33);
  for (unsigned page = 0; page < 4; ++page) {
    m.touch(x, page);
    m.end_all();
    EXPECT_EQ(page_value(m, x, page), page == 0 ? 0x22 : 0x11);
  }
}

// The extent needs another slot, because a child reads its slot, and no slot is free. When one
// becomes free the extent can leave soon, so no request is refused before it has tried.
TEST(MoverMapped, slot_becomes_free_then_requests_wait_for_what_lacked_one) {
  M m({.frames = 2, .on_disk = 2, .parts = true});
  const Handle x = in_slot(m, 0x11);
  m.mover.rest(true);
  m.step();
  ASSERT_TRUE(m.mover.rested());
  m.mover.parent_of_child();
  m.mover.rest(false);
  const Handle other = in_slot(m, 0x33);
  m.touch(x, 0, true);
  m.end_all();
  write_page(m, x, 0, 0x22);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  m.end_all();
  ASSERT_EQ(evict.code(), Code::no_capacity) << evict.request.status.message();
  m.free(other);
  m.end_all();
  Call& both = m.acquire({M::access(m.buffer(), kWrite), M::access(m.buffer(), kWrite)});
  m.end_all();
  EXPECT_FALSE(both.done()) << both.request.status.message();
  m.at(m.now + 10 * M::kMs);
  m.end_all();
  ASSERT_EQ(both.code(), Code::ok) << both.request.status.message();
  m.release(both);
  EXPECT_EQ(page_value(m, x, 0), -1);
}

TEST(MoverMapped, extent_leaves_then_it_is_remembered_how_often_it_was_not_written) {
  for (const bool in_parts : {true, false}) {
    M m({.parts = in_parts});
    ASSERT_EQ(m.ref(m.mapped()), 0u) << "which is always watched";
    const Handle x = in_slot(m, 0x11);
    const auto bring = [&] {
      m.touch(x, 1, true);
      m.end_all();
    };
    for (const unsigned char value : {0x22, 0x33}) {
      m.extent(x).unwritten = 5;
      bring();
      write_page(m, x, 1, value);
      m.evict(x);
      EXPECT_EQ(m.extent(x).unwritten, 0u) << in_parts;
      m.extent(x).unwritten = 0;
      bring();
      write_page(m, x, 1, value);  // The same bytes.
      m.evict(x);
      EXPECT_EQ(m.extent(x).unwritten, 1u) << in_parts;
    }
  }
}

// Watched pages that were read but not written leave without a worker, a hash or a write.
TEST(MoverMapped, watched_pages_that_nobody_wrote_leave_at_once) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  ASSERT_EQ(m.ref(x) % 32, 0u) << "one that is always watched";
  m.touch(x, 1);
  m.end_all();
  const std::uint64_t writes = m.port.writes;
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_TRUE(m.workers.jobs.empty());
  EXPECT_EQ(m.host.dropped(), 1u);
  EXPECT_EQ(m.port.writes, writes);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST(MoverMapped, pages_that_fail_their_read_leave_those_there_as_they_are) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  m.touch(x, 0);
  m.end_all();
  const std::uint64_t in_use = m.host.usage().in_use;
  const Call& touch = m.touch(x, 2);
  m.end_io(EIO);
  m.end_io(EIO);
  EXPECT_EQ(touch.code(), Code::io_error);
  EXPECT_EQ(m.extent(x).parts, 1u);
  EXPECT_EQ(m.host.usage().in_use, in_use);
  EXPECT_EQ(page_value(m, x, 0), 0x11);
  const Call& again = m.touch(x, 2);
  m.end_all();
  EXPECT_EQ(again.code(), Code::ok);
}

// A page that two threads touch is read once. A touch of another page waits for the read in
// progress.
TEST(MoverMapped, touches_of_one_page_read_it_once) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  const Call& first = m.touch(x, 0);
  const Call& second = m.touch(x, 0);
  const Call& other = m.touch(x, 2);
  EXPECT_EQ(m.port.requests.size(), 1u);
  const std::uint64_t reads = m.port.reads;
  m.end_all();
  EXPECT_EQ(first.code(), Code::ok);
  EXPECT_EQ(second.code(), Code::ok);
  EXPECT_EQ(other.code(), Code::ok);
  EXPECT_EQ(m.port.reads, reads + 2);
}

// There is one landing. A touch that finds it in use waits for it.
TEST(MoverMapped, pages_land_one_after_the_other_where_there_is_room_for_so_many) {
  M m({.frames = 6, .parts = true});
  std::vector<Handle> all;
  for (unsigned char i = 0; i < 6; ++i) {
    all.push_back(in_slot(m, i));
  }
  std::vector<const Call*> touches;
  for (const Handle each : all) {
    touches.push_back(&m.touch(each, 3));
  }
  EXPECT_EQ(m.port.requests.size(), 4u) << "a landing of four pages";
  m.end_all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(touches[i]->code(), Code::ok);
    EXPECT_EQ(page_value(m, all[i], 3), static_cast<int>(i));
  }
}

// ---- Pages that are given up

TEST(MoverMapped, pages_given_up_in_a_slot_read_as_zeros_without_io) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  Call& discard =
      m.ask(RequestKind::discard, {{x, kSmallestExtent, 2 * kSmallestExtent, kDiscard, {}, 0}});
  EXPECT_EQ(discard.code(), Code::ok);
  EXPECT_TRUE(discard.request.spans[0].emptied(0));
  EXPECT_EQ(m.port.requests.size(), 0u);
  const Call& touch = m.touch(x, 1);
  EXPECT_TRUE(m.port.requests.empty()) << "zeros are not read";
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(page_value(m, x, 1), 0);
  m.touch(x, 0);
  m.end_all();
  EXPECT_EQ(page_value(m, x, 0), 0x11);
  // After the write, the slot holds the zeros.
  m.evict(x);
  m.touch(x, 1);
  m.end_all();
  EXPECT_EQ(page_value(m, x, 1), 0);
}

TEST(MoverMapped, zeros_at_the_ends_of_what_comes_are_not_read) {
  M m({.parts = true});
  for (const unsigned zero : {1u, 3u}) {
    const Handle x = in_slot(m, 0x11);
    m.touch(x, 0);
    m.end_all();
    m.ask(RequestKind::discard, {{x, zero * kSmallestExtent, kSmallestExtent, kDiscard, {}, 0}});
    m.end_all();
    Call& view = m.acquire(x, kRead);
    ASSERT_EQ(m.port.requests.size(), 1u);
    EXPECT_EQ(m.port.requests[0].offset % M::kExtent, (zero == 1 ? 2 : 1) * kSmallestExtent);
    EXPECT_EQ(m.port.requests[0].length, 2 * kSmallestExtent);
    m.end_all();
    ASSERT_EQ(view.code(), Code::ok);
    for (unsigned page = 0; page < 4; ++page) {
      EXPECT_EQ(page_value(m, x, page), page == zero ? 0 : 0x11);
    }
    m.release(view);
  }
}

TEST(MoverMapped, pages_given_up_that_are_there_leave_and_their_room_with_them) {
  M m({.parts = true});
  const Handle x = two_pages_there(m);
  const std::uint64_t in_use = m.host.usage().in_use;
  const Call& discard = m.ask(RequestKind::discard, {{x, 0, kSmallestExtent, kDiscard, {}, 0}});
  m.end_all();
  EXPECT_EQ(discard.code(), Code::ok);
  EXPECT_EQ(m.extent(x).parts, 4u);
  EXPECT_EQ(m.host.usage().in_use, in_use - kSmallestExtent);
  m.touch(x, 0);
  m.end_all();
  EXPECT_EQ(page_value(m, x, 0), 0);
  EXPECT_EQ(page_value(m, x, 2), 0x11);
}

TEST(MoverMapped, pages_that_the_kernel_does_not_take_are_there_and_left_to_the_caller) {
  M m({.parts = true});
  const Handle x = two_pages_there(m);
  m.dice.fail("empty");
  Call& discard = m.ask(RequestKind::discard, {{x, 0, kSmallestExtent, kDiscard, {}, 0}});
  m.end_all();
  EXPECT_EQ(discard.code(), Code::ok);
  EXPECT_FALSE(discard.request.spans[0].emptied(0));
  EXPECT_EQ(m.extent(x).parts, 5u);
  EXPECT_EQ(m.extent(x).zeros, 0u);
}

TEST(MoverMapped, an_extent_whose_pages_are_all_given_up_has_no_slot) {
  M m({.parts = true});
  const Handle x = in_slot(m, 0x11);
  for (const std::uint64_t half : {0, 2}) {
    m.ask(RequestKind::discard,
          {{x, half * kSmallestExtent, 2 * kSmallestExtent, kDiscard, {}, 0}});
  }
  EXPECT_EQ(m.bits(x).phase(), Phase::zero);
  EXPECT_EQ(m.block.usage().in_use, 0u);
  EXPECT_EQ(m.value(x), 0);
}

// ---- Budgets

TEST(MoverMapped, a_smaller_budget_takes_the_landing_while_no_extent_is_in_parts) {
  M m({.frames = 2, .parts = true});
  const Handle x = in_slot(m, 0x11);
  EXPECT_EQ(m.mover.bounce_bytes(), M::kExtent);
  const Call& smaller = m.set_budget(M::kExtent);
  m.end_all();
  EXPECT_EQ(smaller.code(), Code::ok);
  EXPECT_EQ(m.set_budget(3 * M::kExtent).code(), Code::ok);
  EXPECT_EQ(m.value(x), 0x11);
}

// A child of fork has no landing of its parent's. The first touch creates one, and continues in it.
TEST(MoverMapped, who_waits_for_a_landing_goes_on_when_its_pages_have_come) {
  M m({.parts = true});
  const Handle x = two_pages_there(m);
  m.mover.rest(true);
  m.step();
  ASSERT_TRUE(m.mover.rested());
  m.mover.child_of_parent();
  m.mover.rest(false);
  EXPECT_EQ(m.mover.bounce_bytes(), 0u);
  const Call& touch = m.touch(x, 1);
  ASSERT_EQ(m.workers.waiting(kPopulate), 1u);
  EXPECT_TRUE(m.port.requests.empty());
  m.dice.fail("populate");
  m.workers.run();
  m.settle();
  ASSERT_EQ(m.workers.waiting(kPopulate), 0u) << "the kernel has just refused";
  ASSERT_EQ(m.next, m.now + 10 * M::kMs);
  m.at(m.next);
  ASSERT_EQ(m.workers.waiting(kPopulate), 1u) << "the waiting touch has no other landing";
  EXPECT_TRUE(m.port.requests.empty());
  m.workers.run();
  m.settle();
  ASSERT_EQ(m.port.requests.size(), 1u);
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(page_value(m, x, 1), 0x11);
}

// ---- Extents handed over to another buffer

TEST(MoverMapped, what_is_in_slots_only_changes_hands_without_io_and_the_rest_is_left) {
  M m({.frames = 3});
  const Handle from = m.cold(0x11, 3), to = m.buffer(3);
  const std::uint64_t reads = m.port.reads, writes = m.port.writes;
  Call& resident = m.acquire({M::extent_access(from, 1, kRead)});
  m.end_all();
  m.release(resident);
  Call& call = m.prepare(RequestKind::move_slots, {M::access(from, kRead), M::access(to, kRead)});
  std::array<std::uint8_t, 3> handed{9, 9, 9};
  call.request.moved = handed.data();
  m.post(call);
  m.settle();
  EXPECT_EQ(call.code(), Code::ok);
  EXPECT_EQ(handed, (std::array<std::uint8_t, 3>{1, 0, 1}));
  EXPECT_EQ(m.port.reads, reads + 1);
  EXPECT_EQ(m.port.writes, writes);
  EXPECT_EQ(m.bits(from, 0).phase(), Phase::zero);
  EXPECT_EQ(m.bits(to, 0).phase(), Phase::none);
  Call& view = m.acquire({M::extent_access(to, 2, kRead), M::extent_access(from, 2, kRead)});
  m.end_all();
  ASSERT_EQ(view.code(), Code::ok);
  EXPECT_EQ(view.data()[7], std::byte{0x11});
  EXPECT_EQ(view.data(1)[7], std::byte{0});
  m.release(view);
  // Their checksums were handed over too.
  const Call& damaged = m.acquire({M::extent_access(to, 0, kRead)});
  m.run_workers();
  m.port.end_with_damage();
  m.run_workers();
  EXPECT_FALSE(damaged.done());
  EXPECT_EQ(m.stats().checksum_errors, 1u);
  m.end_all();
  EXPECT_EQ(damaged.code(), Code::ok);
}

}  // namespace
}  // namespace tiermem

// Touching threads that bring their page themselves: the mover decides between two steps, the
// thread reads, and the mover records. No step is made unless the mover needs one.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "tests/unit/mover_fixture.hpp"

namespace tiermem {
namespace {

using M = SteppedMover;

/// A mapped extent with page 0 in memory and the other pages in its slot.
struct MoverOwnTouches : ::testing::Test {
  explicit MoverOwnTouches(const Machine& machine = {.parts = true}) : m(machine) {
    x = m.mapped();
    m.touch(x, 0);
    m.end_all();
    std::memset(m.window(x), 0x11, M::kExtent);
    m.evict(x);
    m.touch(x, 0);
    m.end_all();
    EXPECT_EQ(m.extent(x).parts, 1u);
    reads = m.port.reads;
  }
  int page_value(unsigned page) {
    std::byte* const at = m.window(x) + page * kSmallestExtent;
    return m.host.present(at) ? static_cast<int>(*at) : -1;
  }
  M m;
  Handle x = 0;
  std::uint64_t reads = 0;  // By the devices' queues.
};

TEST_F(MoverOwnTouches, a_page_comes_without_a_step_and_without_a_queue) {
  Call& touch = m.prepare_touch(x, 2);
  const unsigned steps = m.steps;
  Job* const job = m.begin_touch(touch);
  ASSERT_NE(job, nullptr);
  EXPECT_FALSE(m.told()) << "nothing waits for a step";
  EXPECT_FALSE(touch.done());
  EXPECT_EQ(page_value(2), -1);
  m.end_touch(*job);
  EXPECT_FALSE(m.told());
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(page_value(2), 0x11);
  EXPECT_EQ(m.extent(x).parts, 5u);
  EXPECT_EQ(m.steps, steps);
  EXPECT_EQ(m.port.own_reads, 1u);
  EXPECT_EQ(m.port.reads, reads);
}

TEST_F(MoverOwnTouches, the_last_page_makes_the_extent_whole) {
  for (const unsigned page : {1u, 2u, 3u}) {
    if (page_value(page) < 0) {
      Job* const job = m.begin_touch(m.prepare_touch(x, page));
      ASSERT_NE(job, nullptr);
      m.end_touch(*job);
    }
  }
  EXPECT_TRUE(m.resident(x));
  EXPECT_EQ(m.extent(x).parts, 0u);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST_F(MoverOwnTouches, a_page_that_is_there_is_answered_at_once) {
  Call& touch = m.prepare_touch(x, 0);
  EXPECT_EQ(m.begin_touch(touch), nullptr);
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_FALSE(m.told());
}

TEST_F(MoverOwnTouches, another_touch_of_the_page_waits_for_the_first_thread) {
  Call &first = m.prepare_touch(x, 2), &second = m.prepare_touch(x, 2);
  Job* const job = m.begin_touch(first);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(m.begin_touch(second), nullptr) << "it is read once";
  EXPECT_FALSE(second.done());
  m.end_touch(*job);
  EXPECT_EQ(first.code(), Code::ok);
  EXPECT_EQ(second.code(), Code::ok);
  EXPECT_EQ(m.port.own_reads, 1u);
}

TEST_F(MoverOwnTouches, what_the_thread_cannot_read_is_read_by_the_mover) {
  for (const unsigned page : {2u, 3u}) {
    m.port.refuses_own_reads = page == 2 ? EIO : 0;
    m.port.damages_own_reads = page == 3;
    Call& touch = m.prepare_touch(x, page);
    Job* const job = m.begin_touch(touch);
    ASSERT_NE(job, nullptr);
    m.end_touch(*job);
    EXPECT_TRUE(m.told()) << "the mover must read";
    EXPECT_FALSE(touch.done());
    EXPECT_EQ(page_value(page), -1) << "wrong bytes are never shown";
    m.end_all();
    EXPECT_EQ(touch.code(), Code::ok);
    EXPECT_EQ(page_value(page), 0x11);
  }
  EXPECT_EQ(m.port.reads, reads + 2);
  EXPECT_EQ(m.stats().checksum_errors, 1u);
}

TEST_F(MoverOwnTouches, a_buffer_that_is_freed_meanwhile_waits_for_the_thread) {
  Call& touch = m.prepare_touch(x, 2);
  Job* const job = m.begin_touch(touch);
  ASSERT_NE(job, nullptr);
  const Call& freed = m.free(x);
  EXPECT_FALSE(freed.done());
  m.end_touch(*job);
  m.end_all();
  EXPECT_TRUE(freed.done());
  EXPECT_TRUE(touch.done());
  EXPECT_EQ(m.host.usage().in_use, m.mover.bounce_bytes());
}

TEST_F(MoverOwnTouches, an_extent_does_not_leave_while_a_thread_brings_a_page) {
  Job* const job = m.begin_touch(m.prepare_touch(x, 2));
  ASSERT_NE(job, nullptr);
  const Call& evict = m.ask(RequestKind::evict, {M::access(x, kRead)});
  EXPECT_FALSE(evict.done());
  m.end_touch(*job);
  m.end_all();
  EXPECT_EQ(evict.code(), Code::ok);
  EXPECT_EQ(m.extent(x).parts, 0u);
  EXPECT_EQ(m.value(x), 0x11);
}

TEST_F(MoverOwnTouches, while_the_mover_rests_a_touch_waits) {
  m.mover.rest(true);
  m.settle();
  ASSERT_TRUE(m.mover.rested());
  Call& touch = m.prepare_touch(x, 2);
  EXPECT_EQ(m.begin_touch(touch), nullptr);
  EXPECT_TRUE(m.told());
  m.mover.rest(false);
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(page_value(2), 0x11);
}

TEST_F(MoverOwnTouches, the_mover_does_not_rest_while_a_thread_brings_a_page) {
  Job* const job = m.begin_touch(m.prepare_touch(x, 2));
  ASSERT_NE(job, nullptr);
  m.mover.rest(true);
  m.step();
  EXPECT_FALSE(m.mover.rested());
  m.end_touch(*job);
  EXPECT_TRUE(m.told()) << "the mover may rest now";
  m.settle();
  EXPECT_TRUE(m.mover.rested());
  m.mover.rest(false);
}

TEST_F(MoverOwnTouches, a_page_of_zeros_is_not_read) {
  m.extent(x).zeros = 4;
  Call& touch = m.prepare_touch(x, 2);
  Job* const job = m.begin_touch(touch);
  ASSERT_NE(job, nullptr);
  m.end_touch(*job);
  EXPECT_EQ(touch.code(), Code::ok);
  EXPECT_EQ(page_value(2), 0);
  EXPECT_EQ(m.port.own_reads, 0u);
}

struct MoverOwnTouchesFull : MoverOwnTouches {
  MoverOwnTouchesFull() : MoverOwnTouches({.frames = 2, .parts = true}) {}
};

TEST_F(MoverOwnTouchesFull, older_requests_that_wait_for_room_come_first) {
  Call& held = m.acquire(m.buffer(), kWrite);
  m.end_all();
  ASSERT_EQ(held.code(), Code::ok);
  Call& older = m.acquire(m.buffer(), kWrite);
  ASSERT_FALSE(older.done()) << "the extent in parts must leave first";
  Call& touch = m.prepare_touch(x, 2);
  EXPECT_EQ(m.begin_touch(touch), nullptr);
  EXPECT_TRUE(m.told());
  EXPECT_FALSE(touch.done());
  m.end_all();
  ASSERT_EQ(older.code(), Code::ok);
  m.release(older);
  m.release(held);
  m.end_all();
  EXPECT_EQ(touch.code(), Code::ok) << touch.request.status.message();
  EXPECT_EQ(page_value(2), 0x11);
  EXPECT_EQ(m.port.own_reads, 0u);
}

}  // namespace
}  // namespace tiermem

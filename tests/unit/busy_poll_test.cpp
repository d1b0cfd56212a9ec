// When the mover's thread polls instead of sleeping.
#include "runtime/busy_poll.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

constexpr std::int64_t kSpan = 200'000;
constexpr std::int64_t kStart = 1'000'000'000;

TEST(BusyPoll, it_stays_awake_after_a_touch_and_sleeps_later) {
  BusyPoll poll(kSpan);
  EXPECT_FALSE(poll.stays_awake(kStart)) << "nothing was touched";
  poll.note_touches(1, kStart);
  EXPECT_TRUE(poll.stays_awake(kStart));
  poll.note_touches(1, kStart + kSpan / 2);
  EXPECT_TRUE(poll.stays_awake(kStart + kSpan - 1));
  EXPECT_FALSE(poll.stays_awake(kStart + kSpan)) << "no touch since";
  poll.note_touches(2, kStart + 2 * kSpan);
  EXPECT_TRUE(poll.stays_awake(kStart + 3 * kSpan - 1));
}

TEST(BusyPoll, it_gives_way_to_whoever_takes_the_processor) {
  BusyPoll poll(kSpan);
  poll.note_touches(1, kStart);
  ASSERT_TRUE(poll.must_yield(kStart));
  poll.yielded(kStart, kStart + 500);
  EXPECT_TRUE(poll.stays_awake(kStart + 500)) << "no other thread wanted the processor";
  EXPECT_FALSE(poll.must_yield(kStart + 500));
  const std::int64_t again = kStart + 500 + BusyPoll::kYieldNs;
  ASSERT_TRUE(poll.must_yield(again));
  const std::int64_t late = again + BusyPoll::kTakenNs;
  poll.yielded(again, late);
  poll.note_touches(2, late);
  EXPECT_TRUE(poll.stays_awake(late)) << "once may be the host's doing";
  const std::int64_t back = late + BusyPoll::kTakenNs;
  poll.yielded(late, back);
  EXPECT_FALSE(poll.stays_awake(back));
  EXPECT_FALSE(poll.stays_awake(back + BusyPoll::kRestNs - 1));
  poll.note_touches(3, back + BusyPoll::kRestNs);
  EXPECT_TRUE(poll.stays_awake(back + BusyPoll::kRestNs));
}

TEST(BusyPoll, two_long_absences_count_only_in_a_row) {
  BusyPoll poll(kSpan);
  std::int64_t now = kStart;
  poll.note_touches(1, now);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t before = now;
    poll.yielded(before, now += BusyPoll::kTakenNs);
    poll.yielded(now, now + 500);
  }
  EXPECT_TRUE(poll.stays_awake(now + 500));
}

TEST(BusyPoll, machine_is_quiet_after_a_time_without_competitors) {
  BusyPoll poll(kSpan);
  std::int64_t now = kStart;
  poll.note_touches(1, now);
  EXPECT_FALSE(poll.is_quiet(now)) << "nothing is known of the time before the first touch";
  for (std::uint64_t touch = 2; now < kStart + BusyPoll::kQuietNs; ++touch) {
    poll.note_touches(touch, now += kSpan);
  }
  EXPECT_TRUE(poll.is_quiet(now));
  poll.note_crowd(true, now);
  EXPECT_TRUE(poll.is_quiet(now)) << "one look may be chance";
  poll.note_crowd(false, now);
  poll.note_crowd(true, now);
  EXPECT_TRUE(poll.is_quiet(now));
  poll.note_crowd(true, now);
  EXPECT_FALSE(poll.is_quiet(now + BusyPoll::kQuietNs - 1));
  EXPECT_TRUE(poll.is_quiet(now + BusyPoll::kQuietNs));
  const std::int64_t later = now + 2 * BusyPoll::kQuietNs;
  poll.yielded(later, later + BusyPoll::kTakenNs);
  poll.yielded(later + BusyPoll::kTakenNs, later + 2 * BusyPoll::kTakenNs);
  EXPECT_FALSE(poll.is_quiet(later + BusyPoll::kQuietNs)) << "its own processor was taken";
}

TEST(BusyPoll, machine_is_not_known_after_a_sleep) {
  BusyPoll poll(kSpan);
  poll.note_touches(1, kStart);
  const std::int64_t later = kStart + 10 * BusyPoll::kQuietNs;
  poll.note_touches(2, later);
  EXPECT_FALSE(poll.is_quiet(later));
}

TEST(BusyPoll, without_a_span_it_never_stays_awake) {
  BusyPoll poll(0);
  EXPECT_FALSE(poll.note_touches(1, kStart));
  EXPECT_FALSE(poll.stays_awake(kStart));
}

}  // namespace
}  // namespace tiermem

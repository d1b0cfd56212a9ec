// Bounce memory: places, their queues, and areas that follow the budget. Frames are from a fake
// memory. The test decides when the jobs run that populate areas.
#include "mover/bounce.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/mover_doubles.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kArea = 4 * kSmallestExtent;

// The budget has `areas` areas. The bounce memory may use one area for every `per` of them.
struct Fixture {
  explicit Fixture(std::uint64_t areas, std::uint64_t per = 1)
      : tier(areas * kArea, {Kind::dram, 0}, dice),
        bounce(workers, {.area_bytes = kArea,
                         .budget_per_area = per * kArea,
                         .staging_bytes = kArea,
                         .staging_frame_bytes = kArea}) {
    host.tier = &tier;
  }
  void run_jobs() {
    while (!workers.jobs.empty()) {
      workers.run();
    }
    std::array<Done, 8> done;
    for (std::size_t n = workers.reap(done); n > 0; n = workers.reap(done)) {
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_TRUE(bounce.job_done(*done[i].job, now));
      }
    }
  }

  std::int64_t now = 0;
  ScriptedDice dice;
  HeldWorkers workers;
  sim::FakeMemory tier;
  MemoryLedger host;
  Bounce bounce;
};

TEST(Bounce, an_area_has_no_places_before_it_is_populated) {
  Fixture f(4, 4);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  EXPECT_EQ(f.bounce.jobs(), 1u);
  EXPECT_FALSE(f.bounce.any_ready());
  EXPECT_FALSE(f.bounce.take(1, 2)) << "it waits";
  EXPECT_FALSE(f.bounce.grant().has_value());
  f.run_jobs();
  EXPECT_EQ(f.bounce.jobs(), 0u);
  const auto grant = f.bounce.grant();
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->transfer, 1u);
  EXPECT_EQ(f.bounce.check({.places = {grant->place}, .staging_bytes = 0, .partial = 0}), "");
  EXPECT_NE(f.bounce.check({}), "") << "the place has no transfer";
}

TEST(Bounce, an_area_cannot_be_populated_then_the_next_try_waits_for_a_backoff) {
  Fixture f(4, 4);
  f.bounce.attach(f.host, false);
  f.dice.fail("populate", 2);
  f.bounce.prepare();
  EXPECT_FALSE(f.bounce.take(1, 2)) << "it waits";
  std::int64_t pause = 10'000'000;
  for (int failed = 0; failed < 2; ++failed, pause *= 2) {
    f.run_jobs();
    EXPECT_EQ(f.bounce.jobs(), 0u);
    EXPECT_EQ(f.bounce.check({}), "");
    EXPECT_EQ(f.bounce.next(f.now), f.now + pause);
    f.now += pause;
    f.bounce.retry_areas(f.now - 1);
    EXPECT_EQ(f.bounce.jobs(), 0u) << "too early";
    f.bounce.retry_areas(f.now);
    EXPECT_EQ(f.bounce.jobs(), 1u);
    EXPECT_EQ(f.bounce.next(f.now), kNever) << "the end of the job is news";
  }
  f.run_jobs();
  EXPECT_TRUE(f.bounce.grant().has_value());
}

TEST(Bounce, transfers_that_wait_are_served_in_order) {
  Fixture f(4, 4);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  f.run_jobs();
  const Bounce::Place two = f.bounce.take(1, 2);
  ASSERT_TRUE(two);
  EXPECT_FALSE(f.bounce.take(2, 3)) << "three pages need four";
  EXPECT_FALSE(f.bounce.take(3, 1)) << "a small one does not pass";
  EXPECT_FALSE(f.bounce.grant().has_value());
  f.bounce.give(two);
  const auto first = f.bounce.grant();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->transfer, 2u);
  EXPECT_FALSE(f.bounce.grant().has_value());
  f.bounce.give(first->place);
  EXPECT_EQ(f.bounce.grant()->transfer, 3u);
  EXPECT_FALSE(f.bounce.waits());
}

TEST(Bounce, a_smaller_budget_takes_free_areas_and_keeps_one_while_an_extent_is_partial) {
  Fixture f(4);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  f.run_jobs();
  EXPECT_EQ(f.bounce.area_bytes_in_all(), 4 * kArea);
  f.bounce.partial_begun();
  f.tier.set_budget(kArea);
  f.bounce.shrink();
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kArea);
  EXPECT_EQ(f.host.returned, 3 * kArea);
  f.bounce.partial_ended();
  f.bounce.shrink();
  EXPECT_FALSE(f.bounce.has_areas());
}

TEST(Bounce, areas_that_were_lost_with_a_fork_come_back) {
  Fixture f(4, 4);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  f.run_jobs();
  f.bounce.lose_areas();
  EXPECT_FALSE(f.bounce.has_areas());
  EXPECT_EQ(f.bounce.restore(), 0u);
  EXPECT_TRUE(f.bounce.has_areas());
}

TEST(Bounce, a_transfer_without_an_area_makes_room_for_one) {
  Fixture f(1, 4);
  const FrameId taken = f.tier.acquire_frame({Pool::small, kArea, 0});
  f.bounce.attach(f.host, false);
  EXPECT_FALSE(f.bounce.take(1, 1));
  EXPECT_EQ(f.bounce.restore(), kArea);
  f.tier.return_frame(taken);
  EXPECT_EQ(f.bounce.restore(), 0u);
  f.run_jobs();
  EXPECT_TRUE(f.bounce.grant().has_value());
}

TEST(Bounce, a_free_place_is_a_reason_to_step_at_once_while_a_transfer_waits) {
  Fixture f(4, 4);
  f.bounce.attach(f.host, true);
  f.bounce.prepare();
  f.run_jobs();
  const Bounce::Place place = f.bounce.take(1, 4);
  const Staging::Place staging = f.bounce.take_staging(2, kArea);
  EXPECT_FALSE(f.bounce.take(3, 1));
  EXPECT_FALSE(f.bounce.take_staging(4, kArea));
  EXPECT_FALSE(f.bounce.grant().has_value());
  EXPECT_EQ(f.bounce.next(7), kNever);
  f.bounce.give(place);
  EXPECT_EQ(f.bounce.next(7), 7);
  EXPECT_EQ(f.bounce.grant()->transfer, 3u);
  EXPECT_EQ(f.bounce.next(7), kNever);
  f.bounce.give_staging(staging, kArea);
  EXPECT_EQ(f.bounce.next(7), 7);
  EXPECT_EQ(f.bounce.grant_staging()->transfer, 4u);
  EXPECT_EQ(f.bounce.next(7), kNever);
}

TEST(Bounce, areas_of_a_larger_budget_go_when_their_last_place_is_given_back) {
  Fixture f(2);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  f.run_jobs();
  const Bounce::Place first = f.bounce.take(1, 4);
  const Bounce::Place second = f.bounce.take(2, 4);
  ASSERT_TRUE(second);
  f.tier.set_budget(kArea);
  f.bounce.give(first);
  EXPECT_EQ(f.bounce.area_bytes_in_all(), 2 * kArea) << "a place of the last one is taken";
  f.bounce.give(second);
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kArea);
}

TEST(Bounce, areas_for_a_scan_come_with_the_wish_and_go_some_time_after_the_last_one) {
  Fixture f(100);
  f.bounce.attach(f.host, false);
  f.bounce.prepare();
  f.run_jobs();
  constexpr std::uint64_t kUsual = 8 * kArea, kForScans = 64 * kArea;
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kUsual);
  std::vector<Bounce::Place> places;
  while (f.bounce.has_room(4)) {
    places.push_back(f.bounce.take(static_cast<std::uint32_t>(places.size()), 4));
  }
  EXPECT_EQ(places.size(), 8u);
  f.bounce.wish_more();
  f.bounce.prepare();
  f.run_jobs();
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kForScans);
  EXPECT_TRUE(f.bounce.has_room(4));
  for (const Bounce::Place& place : places) {
    f.bounce.give(place);
  }
  const auto use = [&](int times) {
    for (int i = 0; i < times; ++i) {
      f.bounce.give(f.bounce.take(1, 4));
    }
  };
  use(4000);
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kForScans) << "a scan may go on";
  f.bounce.wish_more();
  use(4000);
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kForScans) << "it has gone on";
  use(200);
  EXPECT_EQ(f.bounce.area_bytes_in_all(), kUsual);
  EXPECT_EQ(f.bounce.check({}), "");
}

TEST(Bounce, staging_grants_one_by_one) {
  Fixture f(4);
  f.bounce.attach(f.host, true);
  ASSERT_TRUE(f.bounce.has_staging());
  const Staging::Place whole = f.bounce.take_staging(1, kArea);
  ASSERT_TRUE(whole);
  EXPECT_FALSE(f.bounce.take_staging(2, kArea));
  EXPECT_FALSE(f.bounce.take_staging(3, kSmallestExtent));
  EXPECT_FALSE(f.bounce.grant_staging().has_value());
  f.bounce.give_staging(whole, kArea);
  EXPECT_EQ(f.bounce.grant_staging()->transfer, 2u);
  EXPECT_FALSE(f.bounce.grant_staging().has_value());
  EXPECT_EQ(f.bounce.check({.places = {}, .staging_bytes = kArea, .partial = 0}), "");
}

}  // namespace
}  // namespace tiermem

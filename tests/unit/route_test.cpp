// How the bytes of a transfer travel, and the steps of its jobs.
#include "policy/route.hpp"

#include <gtest/gtest.h>

namespace tiermem {
namespace {

using End = Route::End;
using Way = Route::Way;

TEST(Route, host_is_an_end_then_the_way_is_straight) {
  for (const End other : {End::nothing, End::device, End::slot}) {
    const Route::Ends in{
        .from = other, .to = End::host, .peer_reaches = true, .slot_reaches = true};
    EXPECT_EQ(Route::way(in), Way::straight);
  }
  EXPECT_EQ(Route::way({.from = End::host, .to = End::device}), Way::straight);
  EXPECT_EQ(Route::way({.from = End::host, .to = End::slot, .slot_reaches = true}), Way::straight);
  EXPECT_EQ(Route::way({.from = End::nothing, .to = End::device}), Way::straight);
}

TEST(Route, devices_reach_each_other_then_the_way_is_peer_else_staging) {
  const Route::Ends ends{.from = End::device, .to = End::device};
  EXPECT_EQ(Route::way(ends), Way::staging);
  Route::Ends friends = ends;
  friends.peer_reaches = true;
  EXPECT_EQ(Route::way(friends), Way::peer);
}

TEST(Route, slot_and_device_then_the_way_is_direct_only_for_whole_bytes_without_checksums) {
  for (const bool reads : {false, true}) {
    Route::Ends ends{.from = reads ? End::slot : End::device,
                     .to = reads ? End::device : End::slot};
    EXPECT_EQ(Route::way(ends), Way::staging);
    ends.slot_reaches = true;
    EXPECT_EQ(Route::way(ends), Way::direct);
    Route::Ends checked = ends;
    checked.sums = true;
    EXPECT_EQ(Route::way(checked), Way::staging);
    Route::Ends sparse = ends;
    sparse.some_pages = true;
    EXPECT_EQ(Route::way(sparse), Way::staging);
  }
}

TEST(Route, frame_lacks_pages_or_is_cleared_then_it_is_populated) {
  EXPECT_EQ(Route::prepare({}), JobStep{0});
  EXPECT_EQ(Route::prepare({.lacks_pages = true}), kPopulate);
  EXPECT_EQ(Route::prepare({.clears = true}), kPopulate | kClear);
  EXPECT_EQ(Route::prepare({.lacks_pages = true, .shows = true}), kPopulate | kShow);
}

struct Row {
  const char* what;
  Route::Arrival arrival;
  JobStep steps;
};

TEST(Route, bytes_arrive_then_these_steps_bring_them_to_their_places) {
  const Row rows[] = {
      {"zeros", {.from = End::nothing}, 0},
      {"zeros in a window", {.from = End::nothing, .in_window = true}, kMap},
      {"zeros of a mapped buffer",
       {.from = End::nothing, .in_window = true, .touchable = true},
       kRestore},
      {"a slot without checksums", {.from = End::slot}, 0},
      {"a slot", {.from = End::slot, .sums = Route::Sums::all}, kVerify},
      {"a slot that lacks pages, for a window",
       {.from = End::slot, .sums = Route::Sums::all, .spreads = true, .in_window = true},
       kSpread | kVerify | kMap},
      {"the first read of a file", {.from = End::slot, .sums = Route::Sums::record}, kHash},
      {"a file of which a gather has read some",
       {.from = End::slot, .sums = Route::Sums::some},
       kVerify | kHash},
      {"a slot, to a device",
       {.from = End::slot, .to = End::device, .way = Way::staging, .sums = Route::Sums::all},
       kVerify | kLockPages | kCopyIn},
      {"the host, to a device",
       {.from = End::host, .to = End::device, .takes_home = true},
       kTakeHome | kLockPages | kCopyIn},
      {"a device, to the host", {.from = End::device}, kLockPages | kCopyOut},
      {"a device, to a window of the host: mapped when the copy is good",
       {.from = End::device, .in_window = true},
       kCopyOut},
      {"one device to another by the staging",
       {.from = End::device, .to = End::device, .way = Way::staging},
       kLockPages | kCopyOut | kCopyIn},
      {"one device to another",
       {.from = End::device, .to = End::device, .way = Way::peer},
       kCopyPeer},
      {"bytes that are in their window already",
       {.from = End::slot, .in_window = true, .is_mapped = true},
       0},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(Route::arrive(row.arrival), row.steps) << row.what;
  }
}

TEST(Route, slot_has_the_bytes_of_before_then_they_are_hashed_before_the_write) {
  EXPECT_EQ(Route::hash(false, false), Route::Hash::no);
  EXPECT_EQ(Route::hash(false, true), Route::Hash::no);
  EXPECT_EQ(Route::hash(true, true), Route::Hash::first);
  EXPECT_EQ(Route::hash(true, false), Route::Hash::beside);
}

}  // namespace
}  // namespace tiermem

// The recency order: which extent is the victim after which events. A small memory calls its public
// functions, and answers the probes as the mover does. policy_reference_test.cpp replays whole
// traces.
#include "policy/recency.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace tiermem {
namespace {

constexpr std::uint32_t kBytes = 2u << 20;

/// Extents with pins, reference and dirty bits.
class Memory {
 public:
  struct Extent {
    bool resident = false, pinned = false, referenced = false, dirty = false;
  };

  explicit Memory(std::size_t n) : extents(n) { EXPECT_TRUE(recency.reserve(n).ok()); }

  auto probe() {
    return [this](ExtentRef ref) {
      ++looks;
      EXPECT_TRUE(extents[ref].resident) << ref;
      const Recency::Candidate candidate{!extents[ref].pinned, extents[ref].referenced,
                                         extents[ref].dirty, kBytes};
      extents[ref].referenced = false;
      return candidate;
    };
  }
  void insert(ExtentRef ref, Recency::Hint hint = Recency::Hint(),
              Recency::References references = Recency::References::seen) {
    extents[ref] = {true, false, false, false};
    recency.inserted(ref, kBytes, hint, references);
    recency.settle(probe());
  }
  void insert_range(ExtentRef from, ExtentRef to) {
    for (ExtentRef ref = from; ref < to; ++ref) {
      insert(ref);
    }
  }
  Vector<Recency::Victim> choose(unsigned n) {
    Vector<Recency::Victim> victims;
    looks = 0;
    const std::size_t found = recency.choose(std::uint64_t{n} * kBytes, n, probe(), victims);
    EXPECT_EQ(found, victims.size());
    const Status books = recency.check();
    EXPECT_TRUE(books.ok()) << books.message();
    return victims;
  }
  /// Evicts one victim. Returns it, or kNoLink.
  ExtentRef evict() {
    const auto victims = choose(1);
    if (victims.empty()) {
      return kNoLink;
    }
    leave(victims[0].ref, true);
    return victims[0].ref;
  }
  void leave(ExtentRef ref, bool keep_ghost) {
    extents[ref] = {};
    recency.removed(ref, keep_ghost);
  }

  Recency recency;
  std::vector<Extent> extents;
  std::size_t looks = 0;
};

TEST(Recency, records_for_more_extents_than_memory_could_hold_are_refused) {
  Recency recency;
  const Status refused = recency.reserve(~std::size_t{0} / 2);
  EXPECT_EQ(refused.code(), Code::no_capacity);
  EXPECT_NE(std::string(refused.message()).find("records of"), std::string::npos);
  EXPECT_TRUE(recency.reserve(4).ok()) << "and nothing is lost by it";
}

// An extent returns with another size before the order was told that it had left.
TEST(Recency, what_is_inserted_twice_is_there_once) {
  Memory memory(4);
  memory.insert(0);
  memory.insert(1);
  memory.recency.inserted(0, kBytes / 2);
  EXPECT_TRUE(memory.recency.check().ok()) << memory.recency.check().message();
  std::vector<ExtentRef> left = {memory.evict(), memory.evict(), memory.evict()};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<ExtentRef>{0, 1, kNoLink}));
  // An absent extent does not grow.
  memory.recency.grown(3, kBytes);
  EXPECT_TRUE(memory.recency.check().ok());
}

/// The oldest third, without references, is held in main for loops; victims begin after it.
constexpr ExtentRef kHeld = 34;

TEST(Recency, extents_never_referenced_leave_in_the_order_they_came_the_oldest_third_apart) {
  Memory memory(100);
  memory.insert_range(0, 100);
  for (ExtentRef ref = kHeld; ref < 80; ++ref) {
    EXPECT_EQ(memory.evict(), ref);
  }
}

TEST(Recency, a_referenced_extent_outlives_those_that_are_not) {
  Memory memory(100);
  memory.insert_range(0, 100);
  memory.extents[0].referenced = memory.extents[50].referenced = true;
  std::vector<ExtentRef> gone;
  for (int i = 0; i < 80; ++i) {
    gone.push_back(memory.evict());
  }
  EXPECT_EQ(std::count(gone.begin(), gone.end(), 0u), 0);
  EXPECT_EQ(std::count(gone.begin(), gone.end(), 50u), 0);
  EXPECT_EQ(memory.recency.order(50), Order::main);
}

TEST(Recency, fresh_bytes_are_not_the_first_victims_while_older_ones_can_move) {
  Memory memory(400);
  memory.insert_range(0, 200);
  for (ExtentRef ref = 0; ref < 200; ++ref) {
    memory.extents[ref].referenced = true;  // All old extents are in use, and the fresh one is not.
  }
  for (ExtentRef ref = 200; ref < 215; ++ref) {
    memory.insert(ref);
    EXPECT_LT(memory.evict(), 200u) << "after inserting " << ref;
  }
}

TEST(Recency, fresh_bytes_leave_when_nothing_else_can_move) {
  Memory memory(100);
  memory.insert_range(0, 100);
  for (ExtentRef ref = 0; ref < 99; ++ref) {
    memory.extents[ref].pinned = true;
  }
  EXPECT_EQ(memory.evict(), 99u);
  EXPECT_EQ(memory.evict(), kNoLink);
  EXPECT_TRUE(memory.recency.exhausted());
}

// For example a device that holds nothing while a request waits for room in it.
TEST(Recency, where_nothing_ever_came_nothing_can_move) {
  Memory memory(0);
  EXPECT_TRUE(memory.choose(8).empty());
  EXPECT_TRUE(memory.recency.exhausted());
}

TEST(Recency, pinned_extents_are_never_chosen_and_looking_is_bounded) {
  Memory memory(5000);
  memory.insert_range(0, 5000);
  for (auto& extent : memory.extents) {
    extent.pinned = true;
  }
  int calls = 0;
  do {
    EXPECT_TRUE(memory.choose(8).empty());
    EXPECT_LE(memory.looks, 11u * (8 + 64));
    ASSERT_LT(++calls, 200) << "it never says that nothing can move";
  } while (!memory.recency.exhausted());
  memory.extents[4321].pinned = false;
  ExtentRef found = kNoLink;
  for (calls = 0; found == kNoLink && calls < 200; ++calls) {
    found = memory.evict();
  }
  EXPECT_EQ(found, 4321u);
}

TEST(Recency, a_call_finds_a_victim_even_when_all_were_referenced) {
  Memory memory(5000);
  memory.insert_range(0, 5000);
  for (int round = 0; round < 100; ++round) {
    for (auto& extent : memory.extents) {
      extent.referenced = true;
    }
    EXPECT_NE(memory.evict(), kNoLink);
    EXPECT_LE(memory.looks, 11u * (1 + 64));
  }
}

TEST(Recency, no_more_victims_than_the_bytes_and_the_limit_ask_for) {
  Memory memory(100);
  memory.insert_range(0, 100);
  Vector<Recency::Victim> victims;
  EXPECT_EQ(memory.recency.choose(3 * std::uint64_t{kBytes} - 1, 50, memory.probe(), victims), 3u);
  EXPECT_EQ(memory.recency.choose(~std::uint64_t{0}, 5, memory.probe(), victims), 5u);
  EXPECT_EQ(memory.recency.choose(0, 5, memory.probe(), victims), 0u);
  EXPECT_EQ(memory.recency.choose(kBytes, 0, memory.probe(), victims), 0u);
  EXPECT_FALSE(memory.recency.exhausted());
  std::vector<ExtentRef> refs;
  for (const auto& victim : victims) {
    refs.push_back(victim.ref);
  }
  std::sort(refs.begin(), refs.end());
  EXPECT_EQ(std::unique(refs.begin(), refs.end()), refs.end()) << "a victim was given out twice";
}

TEST(Recency, a_rejected_victim_is_not_the_next_one) {
  Memory memory(100);
  memory.insert_range(0, 100);
  const ExtentRef first = memory.choose(1).at(0).ref;
  memory.recency.rejected(first);
  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(memory.evict(), first);
  }
}

TEST(Recency, a_clean_victim_near_a_dirty_one_goes_first_and_the_dirty_one_only_waits_once) {
  Memory memory(100);
  memory.insert_range(0, 100);
  memory.extents[kHeld].dirty = memory.extents[kHeld + 1].dirty = true;
  auto victims = memory.choose(1);
  EXPECT_EQ(victims.at(0).ref, kHeld + 2);
  EXPECT_FALSE(victims[0].dirty);
  victims = memory.choose(2);
  EXPECT_EQ(victims.at(0).ref, kHeld);
  EXPECT_TRUE(victims[0].dirty);
  EXPECT_EQ(victims.at(1).ref, kHeld + 1);
}

TEST(Recency, when_all_are_dirty_the_oldest_goes) {
  Memory memory(100);
  memory.insert_range(0, 100);
  for (auto& extent : memory.extents) {
    extent.dirty = true;
  }
  for (ExtentRef ref = kHeld; ref < 64; ++ref) {
    EXPECT_EQ(memory.evict(), ref);
  }
}

TEST(Recency, cold_extents_go_first_unless_used_since) {
  Memory memory(100);
  memory.insert_range(0, 100);
  memory.recency.advised(60, Advice::cold, 0);
  memory.recency.advised(61, Advice::cold, 0);
  memory.recency.advised(62, Advice::cold, 0);
  memory.recency.advised(61, Advice::will_need, 0);
  memory.extents[62].referenced = true;
  EXPECT_EQ(memory.evict(), 60u);
  EXPECT_EQ(memory.evict(), kHeld);
  EXPECT_EQ(memory.recency.order(61), Order::main);
  EXPECT_EQ(memory.recency.order(62), Order::main);
}

TEST(Recency, a_streamed_extent_goes_first_after_its_first_use_and_not_before) {
  Memory memory(300);
  memory.insert_range(0, 100);
  memory.insert(200, {Advice::streamed, 0});
  memory.insert(201, {Advice::streamed, 0});
  memory.extents[201].referenced = true;
  EXPECT_EQ(memory.evict(), 201u);
  EXPECT_EQ(memory.evict(), kHeld);
  EXPECT_EQ(memory.recency.order(200), Order::streamed);
  memory.extents[200].referenced = true;
  EXPECT_EQ(memory.evict(), 200u);
  memory.insert(200);  // The hint holds for its next residence.
  EXPECT_EQ(memory.recency.order(200), Order::streamed);
  memory.recency.advised(200, Advice::normal, 0);
  EXPECT_EQ(memory.recency.order(200), Order::main);
}

TEST(Recency, a_streamed_extent_that_is_never_used_does_not_stay_for_ever) {
  Memory memory(400);
  memory.insert_range(0, 100);
  memory.insert(399, {Advice::streamed, 0});
  bool gone = false;
  for (ExtentRef ref = 100; ref < 200 && !gone; ++ref) {
    memory.insert(ref);
    gone = memory.evict() == 399;
  }
  EXPECT_TRUE(gone);
}

TEST(Recency, streamed_extents_go_before_a_request_is_refused) {
  Memory memory(20);
  for (ExtentRef ref = 0; ref < 10; ++ref) {
    memory.insert(ref, {Advice::streamed, 0});
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_NE(memory.evict(), kNoLink) << i;
  }
}

TEST(Recency, kept_extents_go_only_when_nothing_else_can) {
  Memory memory(50);
  memory.insert_range(0, 50);
  memory.recency.advised(0, Advice::keep, 1);
  memory.recency.advised(1, Advice::keep, 1);
  memory.recency.advised(1, Advice::keep, 0);
  for (int i = 0; i < 49; ++i) {
    EXPECT_NE(memory.evict(), 0u);
  }
  EXPECT_EQ(memory.evict(), 0u);
  EXPECT_EQ(memory.evict(), kNoLink);
  memory.insert(0);
  EXPECT_EQ(memory.recency.order(0), Order::kept);
}

TEST(Recency, the_farthest_next_use_beyond_the_horizon_goes_first_the_near_ones_stay) {
  Memory memory(100);
  memory.recency.set_horizon(10);
  memory.recency.tick(1000);
  memory.insert_range(0, 50);
  const std::uint64_t uses[] = {1005, 2000, 1500, 1011, 1010, 3000, ~std::uint64_t{0}};
  for (ExtentRef i = 0; i < 7; ++i) {
    memory.recency.advised(20 + i, Advice::next_use, uses[i]);
  }
  EXPECT_EQ(memory.evict(), 26u);
  EXPECT_EQ(memory.evict(), 25u);
  EXPECT_EQ(memory.evict(), 21u);
  EXPECT_EQ(memory.evict(), 22u);
  EXPECT_EQ(memory.evict(), 23u);
  EXPECT_LT(memory.evict(), 20u);  // 20 and 24 are needed soon.
  EXPECT_EQ(memory.recency.order(20), Order::planned);
  memory.recency.tick(1006);
  EXPECT_EQ(memory.recency.order(20), Order::main);  // Its use is over.
  EXPECT_EQ(memory.recency.order(24), Order::planned);
  while (memory.recency.count(Order::probation) + memory.recency.count(Order::main) > 0) {
    ASSERT_NE(memory.evict(), 24u);
  }
  EXPECT_EQ(memory.evict(), 24u);
}

TEST(Recency, a_use_at_the_present_tick_is_planned_and_one_before_it_is_not) {
  Memory memory(10);
  memory.recency.tick(100);
  memory.insert_range(0, 3);
  for (ExtentRef i = 0; i < 3; ++i) {
    memory.recency.advised(i, Advice::next_use, 99 + i);
    memory.insert(3 + i, {Advice::next_use, 99 + i});
  }
  for (const std::uint64_t tick : {std::uint64_t{100}, std::uint64_t{101}, std::uint64_t{102}}) {
    memory.recency.tick(tick);
    for (ExtentRef i = 0; i < 6; ++i) {
      EXPECT_EQ(memory.recency.order(i) == Order::planned, 99 + i % 3 >= tick) << i << " " << tick;
    }
  }
}

// The search continues at a place in the order from which many extents have left since.
TEST(Recency, a_search_among_the_planned_goes_on_when_most_of_them_have_left) {
  constexpr ExtentRef kAll = 100, kLeft = 12;
  Memory memory(kAll);
  for (ExtentRef ref = 0; ref < kAll; ++ref) {
    memory.insert(ref, {Advice::next_use, 100000 - ref});
    memory.extents[ref].pinned = true;
  }
  for (ExtentRef looks = 0; looks < 2 * kAll; looks += 7) {
    EXPECT_EQ(memory.evict(), kNoLink);
    for (ExtentRef ref = kLeft; ref < kAll; ++ref) {
      memory.extents[ref].pinned = looks < kAll;
    }
    if (looks >= kAll) {
      break;
    }
  }
  for (ExtentRef left = kLeft; left < kAll; ++left) {
    EXPECT_GE(memory.evict(), kLeft);
  }
  EXPECT_EQ(memory.evict(), kNoLink);
  memory.extents[kLeft - 1].pinned = false;
  EXPECT_EQ(memory.evict(), kLeft - 1);
}

TEST(Recency, many_pinned_planned_extents_do_not_hide_the_one_that_can_move) {
  Memory memory(1000);
  for (ExtentRef ref = 0; ref < 1000; ++ref) {
    memory.insert(ref, {Advice::next_use, 100000 - ref});
    memory.extents[ref].pinned = ref != 900;
  }
  ExtentRef found = kNoLink;
  for (int calls = 0; found == kNoLink && calls < 100; ++calls) {
    found = memory.evict();
  }
  EXPECT_EQ(found, 900u);
}

TEST(Recency, an_evicted_extent_that_comes_back_soon_enters_main_a_freed_one_does_not) {
  Memory memory(300);
  memory.insert_range(0, 100);
  const ExtentRef evicted = memory.evict(), freed = memory.evict();
  memory.recency.removed(freed, false);
  memory.insert(evicted);
  memory.insert(freed);
  EXPECT_EQ(memory.recency.order(evicted), Order::returning);
  EXPECT_EQ(memory.recency.order(freed), Order::fresh);
}

/// Uses of 24 hot and 72 cold extents in any order, nine of ten of hot ones, in a memory for 48. No
/// use of a resident extent is seen. Returns the share of uses that found it absent, in per cent.
double absences(Recency::References references) {
  constexpr unsigned kUses = 40'000;
  Memory memory(96);
  std::mt19937 random(1);
  unsigned resident = 0, absent = 0;
  for (unsigned i = 0; i < kUses; ++i) {
    const ExtentRef ref = random() % 10 != 0 ? random() % 24 : 24 + random() % 72;
    if (memory.extents[ref].resident) {
      continue;
    }
    ++absent;
    if (resident == 48) {
      EXPECT_NE(memory.evict(), kNoLink);
      --resident;
    }
    memory.insert(ref, Recency::Hint(), references);
    ++resident;
  }
  return 100.0 * absent / kUses;
}

TEST(Recency, extent_with_hidden_references_stays_if_it_returned_soon) {
  const double before = absences(Recency::References::seen);
  const double now = absences(Recency::References::hidden);
  std::printf("absent: %.2f %% with levels, %.2f %% without\n", now, before);
  EXPECT_LE(now, 0.8 * before);
}

TEST(Recency, freeing_forgets_hints) {
  Memory memory(10);
  memory.recency.advised(3, Advice::keep, 1);
  memory.insert(3);
  EXPECT_EQ(memory.recency.order(3), Order::kept);
  memory.leave(3, false);
  memory.insert(3);
  EXPECT_EQ(memory.recency.order(3), Order::fresh);
}

TEST(Recency, bytes_are_counted_by_extent_and_not_by_number) {
  Recency recency;
  ASSERT_TRUE(recency.reserve(10).ok());
  recency.inserted(0, 64u << 20);
  recency.inserted(1, 4096);
  recency.inserted(2, 5000);
  EXPECT_EQ(recency.bytes(Order::fresh), (64u << 20) + 3 * 4096u);
  EXPECT_EQ(recency.count(Order::fresh), 3u);
  EXPECT_TRUE(recency.check().ok());
}

TEST(Recency, its_books_hold_under_random_events_and_every_call_is_bounded) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr ExtentRef kExtents = 300;
    Memory memory(kExtents);
    std::vector<ExtentRef> leaving;
    std::uint64_t ordinal = 0;
    for (int i = 0; i < 3000; ++i) {
      const ExtentRef ref = random() % kExtents;
      const auto in_flight = std::find(leaving.begin(), leaving.end(), ref);
      auto& extent = memory.extents[ref];
      switch (random() % 10) {
        case 0:
        case 1:
          if (!extent.resident) {
            const Advice hints[] = {Advice::normal,   Advice::normal, Advice::cold,
                                    Advice::streamed, Advice::keep,   Advice::next_use};
            memory.insert(ref, {hints[random() % 6], ordinal + random() % 100});
          }
          break;
        case 2:
          extent.referenced = extent.resident;
          break;
        case 3:
          extent.pinned = extent.resident && random() % 2 == 0;
          break;
        case 4:
          extent.dirty = extent.resident && random() % 2 == 0;
          break;
        case 5: {
          const unsigned limit = 1 + random() % 20;
          for (const auto& victim : memory.choose(limit)) {
            EXPECT_FALSE(memory.extents[victim.ref].pinned);
            EXPECT_EQ(memory.extents[victim.ref].dirty, victim.dirty);
            EXPECT_EQ(std::count(leaving.begin(), leaving.end(), victim.ref), 0);
            leaving.push_back(victim.ref);
          }
          EXPECT_LE(memory.looks, 11u * (limit + 64));
          break;
        }
        case 6:
        case 7:
          if (!leaving.empty()) {
            const ExtentRef out = leaving.back();
            leaving.pop_back();
            if (random() % 4 == 0) {
              memory.recency.rejected(out);
              EXPECT_NE(memory.recency.order(out), Order::leaving);
            } else {
              memory.leave(out, true);
            }
          }
          break;
        case 8:
          memory.recency.advised(ref, static_cast<Advice>(random() % 13),
                                 random() % 3 == 0 ? 0 : ordinal + random() % 100);
          break;
        default:
          if (random() % 4 == 0) {
            if (in_flight != leaving.end()) {
              leaving.erase(in_flight);
            }
            memory.leave(ref, random() % 2 == 0);
          } else {
            memory.recency.tick(ordinal += random() % 5);
            memory.recency.settle(memory.probe());
          }
      }
      const Status books = memory.recency.check();
      ASSERT_TRUE(books.ok()) << books.message() << " after event " << i;
      ASSERT_EQ(memory.recency.order(ref) != Order::absent, memory.extents[ref].resident);
      ASSERT_EQ(memory.recency.count(Order::leaving), leaving.size());
    }
  }
}

}  // namespace
}  // namespace tiermem

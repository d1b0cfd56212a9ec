// Objects by pointer, in memory that moves and in memory that stays: bytes, budgets, freeing, and
// refusals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/forked_child.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kBudget = 16 * kMiB;
constexpr Place kTiered{Kind::any, 0};
constexpr Place kDram{Kind::dram, 0};
constexpr Place kNode{Kind::numa, 0};
constexpr Place kPmem{Kind::pmem, 0};
constexpr int kFewer = kThreadSanitizer ? 4 : 1;

struct Object {
  std::uint64_t* words = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t seed = 0;
  std::span<std::uint64_t> all() const { return {words, bytes / 8}; }
};

struct PlacedMemory : ::testing::Test {
  void SetUp() override { open(""); }
  void open(const std::string& more) {
    context = make_context("dram=16M; nvme=" + directory.path() + ":512M" + more);
    ASSERT_NE(context, nullptr);
    moves = context->alloc(4096, {.flags = kMapped}).ok();
  }
  /// Allocates and fills an object of at least 8 bytes. Returns the error if it is refused.
  Result<Object> object(Place place, std::uint64_t bytes, std::uint64_t seed) {
    Result<void*> block = context->malloc_at(place, bytes);
    if (!block.ok()) {
      return std::move(block).status();
    }
    Object made{static_cast<std::uint64_t*>(*block), bytes, seed};
    fill(made.all(), seed);
    return made;
  }
  void end(const Object& object) {
    EXPECT_EQ(wrong(object.all(), object.seed), 0u);
    const Status status = context->free_ptr(object.words);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  /// Expects that free_ptr refuses the pointer, and that the message has the address and `word`.
  void refuses(void* pointer, const char* word) {
    const Status status = context->free_ptr(pointer);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    const std::string text = status.message();
    EXPECT_NE(text.find(fmt::format("{}", pointer)), std::string::npos) << text;
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_EQ(context->usable_size(pointer).code(), Code::invalid_argument);
  }
  /// Returns whether another buffer can use the whole budget.
  testing::AssertionResult budget_is_free(Place place = kDram) {
    auto all = context->alloc(kBudget - 2 * kMiB, {.preferred = place});
    if (!all.ok()) {
      return testing::AssertionFailure() << all.message();
    }
    const auto view = all->acquire(kDiscard, 0, 0, Timeout::seconds(10));
    return view.ok() ? testing::AssertionSuccess() : testing::AssertionFailure() << view.message();
  }
  Directory directory;
  std::unique_ptr<Context> context;
  bool moves = false;
};

struct InEachPlace : PlacedMemory, ::testing::WithParamInterface<Place> {
  void SetUp() override {
    const std::string more = GetParam() == kNode   ? "; numa=0:16M"
                             : GetParam() == kPmem ? "; pmem=" + directory.path() + ":16M"
                                                   : "";
    auto probe = Context::create("dram=16M; nvme=off" + more);
    if (!probe.ok()) {
      GTEST_SKIP() << probe.message();
    }
    probe->reset();
    open(more);
  }
  /// The memory that is charged for the objects.
  Place memory() const { return GetParam() == kTiered ? kDram : GetParam(); }
  std::uint64_t used() const {
    const Stats stats = context->stats();
    const TierStats* const tier = stats.tier(memory());
    return tier != nullptr ? tier->used : 0;
  }
};
const char* name_of(const ::testing::TestParamInfo<Place>& place) {
  switch (place.param.kind) {
    case Kind::any:
      return "tiered";
    case Kind::dram:
      return "dram";
    case Kind::numa:
      return "numa";
    default:
      return "pmem";
  }
}
INSTANTIATE_TEST_SUITE_P(Places, InEachPlace, ::testing::Values(kTiered, kDram, kNode, kPmem),
                         name_of);

TEST_P(InEachPlace, an_object_has_the_size_and_alignment_that_was_asked_for) {
  std::vector<void*> blocks;
  for (const std::uint64_t bytes : {0, 1, 16, 24, 1000, 5000, 70'000, 300'000, 3'000'000}) {
    for (const std::uint64_t align : {1, 16, 64, 4096, 65536, 262144}) {
      Result<void*> block = context->malloc_at(GetParam(), bytes, align);
      ASSERT_TRUE(block.ok()) << block.message();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*block) % std::max<std::uint64_t>(16, align), 0u);
      Result<std::uint64_t> usable = context->usable_size(*block);
      ASSERT_TRUE(usable.ok()) << usable.message();
      EXPECT_GE(*usable, std::max<std::uint64_t>(1, bytes));
      std::memset(*block, 0xA5, *usable);
      if (bytes < 1'000'000) {
        blocks.push_back(*block);
      } else {
        EXPECT_TRUE(context->free_ptr(*block).ok());
      }
      if (blocks.size() == 24) {  // About 16 MiB.
        for (void* const each : blocks) {
          EXPECT_TRUE(context->free_ptr(each).ok());
        }
        blocks.clear();
      }
    }
  }
  for (void* const each : blocks) {
    EXPECT_TRUE(context->free_ptr(each).ok());
  }
  EXPECT_TRUE(context->free_ptr(nullptr).ok());
  Result<void*> first = context->malloc_at(GetParam(), 0);
  Result<void*> second = context->malloc_at(GetParam(), 0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(context->free_ptr(*first).ok());
  EXPECT_TRUE(context->free_ptr(*second).ok());
  EXPECT_EQ(context->stats().placed_used, 0u);
}

// Threads allocate and free objects of all sizes, half of them allocated by another thread. Each
// byte is checked when its object is freed.
TEST_P(InEachPlace, objects_of_many_threads_keep_their_bytes) {
  constexpr unsigned kThreads = 4;
  std::mutex mutex;
  std::vector<Object> shared;
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 dice(t);
      for (int i = 0; i < 4000 / kFewer; ++i) {
        const std::uint64_t most = dice() % 200 == 0 ? 300'000 : dice() % 8 == 0 ? 20'000 : 600;
        auto made = object(GetParam(), 8 + dice() % most / 8 * 8, dice());
        if (!made.ok()) {
          ++bad;
          ADD_FAILURE() << made.message();
          return;
        }
        Object old;
        {
          const std::lock_guard lock(mutex);
          shared.push_back(*made);
          if (shared.size() > 300) {
            std::swap(shared[dice() % shared.size()], shared.back());
            old = shared.back();
            shared.pop_back();
          }
        }
        if (old.words != nullptr) {
          bad += wrong(old.all(), old.seed);
          bad += context->free_ptr(old.words).ok() ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(context->stats().placed_used, 0u);
  for (const Object& each : shared) {
    end(each);
  }
  EXPECT_EQ(context->stats().placed_used, 0u);
  EXPECT_LE(used(), kBudget);
  EXPECT_TRUE(budget_is_free(memory()));
}

TEST_P(InEachPlace, what_is_freed_goes_back_to_the_budget) {
  std::vector<Object> objects;
  for (std::uint64_t i = 0; i < 8 * kMiB / 1024; ++i) {
    auto made = object(GetParam(), 1024, i);
    ASSERT_TRUE(made.ok()) << made.message();
    objects.push_back(*made);
  }
  Stats stats = context->stats();
  EXPECT_EQ(stats.placed_used, 8 * kMiB);
  EXPECT_GE(stats.placed_held, 8 * kMiB);
  EXPECT_LE(stats.placed_held, 9 * kMiB);
  EXPECT_GE(used(), 8 * kMiB);
  if (GetParam() == kDram) {
    EXPECT_GE(stats.dram_pinned, 8 * kMiB);
  }
  for (const Object& each : objects) {
    end(each);
  }
  stats = context->stats();
  EXPECT_EQ(stats.placed_used, 0u);
  EXPECT_LE(stats.placed_held, kMiB);  // One chunk.
  EXPECT_LE(stats.dram_pinned, kMiB);
  EXPECT_TRUE(budget_is_free(memory()));
}

// The last blocks that a thread frees are in many chunks, and it keeps them.
TEST_P(InEachPlace, blocks_that_a_thread_keeps_go_back_when_memory_is_short) {
  std::barrier both(2);
  std::thread thread([&] {
    for (int round = 0; round < 2; ++round) {
      std::vector<Object> objects;
      for (std::uint64_t i = 0; i < 8 * kMiB / 64; ++i) {
        auto made = object(GetParam(), 64, i);
        ASSERT_TRUE(made.ok()) << made.message();
        objects.push_back(*made);
      }
      std::shuffle(objects.begin(), objects.end(), std::mt19937_64(1));
      for (const Object& each : objects) {
        end(each);
      }
      refuses(objects.back().words, "freed before (a block of 64 bytes)");
      both.arrive_and_wait();
      both.arrive_and_wait();
    }
  });
  both.arrive_and_wait();
  EXPECT_EQ(context->stats().placed_used, 0u);
  EXPECT_GT(context->stats().placed_held, 2 * kMiB);
  EXPECT_TRUE(budget_is_free(memory()));
  if (GetParam() == kDram) {  // Other memory leaves without the heap.
    EXPECT_EQ(context->stats().placed_held, 0u);
  }
  both.arrive_and_wait();
  both.arrive_and_wait();
  const Status lowered = context->set_budget(memory(), 4 * kMiB, Timeout::seconds(10));
  EXPECT_TRUE(lowered.ok()) << lowered.message();
  EXPECT_LE(used(), 4 * kMiB);
  both.arrive_and_wait();
  thread.join();
}

TEST_P(InEachPlace, a_pointer_that_is_no_object_is_an_error_that_names_it) {
  int local = 0;
  refuses(&local, "not in memory");
  auto made = object(GetParam(), 4000, 1);
  auto kept = object(GetParam(), 4000, 2);
  auto large = object(GetParam(), kMiB, 3);
  ASSERT_TRUE(made.ok() && kept.ok() && large.ok());
  refuses(&local, "not in memory");
  refuses(made->words + 1, "no block begins at");
  refuses(large->words + 1, "no block begins at");
  auto other = make_context("dram=16M; nvme=off");
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->free_ptr(made->words).code(), Code::invalid_argument);
  end(*made);
  refuses(made->words, "freed before (a block of 4096 bytes)");
  auto small = object(GetParam(), 64, 4);
  ASSERT_TRUE(small.ok());
  refuses(small->words + 1, "no block begins at");
  end(*small);  // The thread keeps it.
  refuses(small->words, "freed before (a block of 64 bytes)");
  std::thread([&] { refuses(small->words, "freed before (a block of 64 bytes)"); }).join();
  end(*large);
  refuses(large->words, "not in memory");
  end(*kept);
  EXPECT_EQ(context->usable_size(nullptr).code(), Code::invalid_argument);
}

TEST_P(InEachPlace, closing_ends_what_is_still_there) {
  ASSERT_TRUE(object(GetParam(), 64, 1).ok());  // The thread keeps others like it.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(object(GetParam(), 10'000, 1).ok());
  }
  auto object_of_mine = object(GetParam(), 2 * kMiB, 1);
  ASSERT_TRUE(object_of_mine.ok());
  const Status closed = context->close();
  EXPECT_TRUE(closed.ok()) << closed.message();
  EXPECT_EQ(context->malloc_at(GetParam(), 1).code(), Code::shut_down);
  EXPECT_EQ(context->malloc_at(GetParam(), 64).code(), Code::shut_down);
  EXPECT_EQ(context->free_ptr(object_of_mine->words).code(), Code::shut_down);
  EXPECT_EQ(context->usable_size(object_of_mine->words).code(), Code::shut_down);
}

TEST_F(PlacedMemory, a_held_view_still_keeps_the_context_open) {
  ASSERT_TRUE(object(kDram, 1000, 1).ok());
  Buffer buffer = make_buffer(*context, 4096, "held");
  auto view = buffer.acquire(kRead);
  ASSERT_TRUE(view.ok());
  const Status closed = context->close();
  EXPECT_EQ(closed.code(), Code::busy);
  EXPECT_NE(std::strstr(closed.message(), "'held'"), nullptr) << closed.message();
  EXPECT_EQ(std::strstr(closed.message(), "malloc"), nullptr) << closed.message();
}

// Small objects of four times the memory, read in another order than that of their allocation.
TEST_F(PlacedMemory, more_objects_than_memory_move_by_themselves) {
  if (!moves) {
    GTEST_SKIP() << "no mapped buffers here";
  }
  std::vector<Object> objects;
  std::mt19937_64 dice(1);
  std::uint64_t bytes = 0;
  while (bytes < 4 * kBudget / kFewer * (kThreadSanitizer ? 2 : 1)) {
    auto made = object(kTiered, 8 + dice() % 4096 / 8 * 8, objects.size());
    ASSERT_TRUE(made.ok()) << made.message();
    objects.push_back(*made);
    bytes += made->bytes;
  }
  std::uint64_t bad = 0;
  for (const Object& each : objects) {
    bad += wrong(each.all(), each.seed);
  }
  for (int i = 0; i < 300; ++i) {
    const Object& each = objects[dice() % objects.size()];
    bad += wrong(each.all(), each.seed);
  }
  EXPECT_EQ(bad, 0u);
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, kBudget);
  EXPECT_GE(stats.demoted, kBudget / 2);
  EXPECT_GT(stats.promoted + stats.prefetched, kBudget / 2);
  EXPECT_GT(stats.faults, 0u);
  EXPECT_GE(stats.placed_used, bytes);
  // Not read first: bytes on the disk need not be read to be freed.
  for (const Object& each : objects) {
    ASSERT_TRUE(context->free_ptr(each.words).ok());
  }
  EXPECT_EQ(context->stats().placed_used, 0u);
  EXPECT_TRUE(budget_is_free());
}

TEST_F(PlacedMemory, a_full_budget_is_an_error_that_says_who_has_it) {
  std::vector<Object> objects;
  Status refusal;
  const auto start = std::chrono::steady_clock::now();
  while (refusal.ok()) {
    ASSERT_LT(objects.size(), kBudget / 10'000);
    auto made = object(kDram, 10'000, objects.size());
    if (made.ok()) {
      objects.push_back(*made);
    } else {
      refusal = std::move(made).status();
    }
  }
  EXPECT_EQ(refusal.code(), Code::no_capacity);
  EXPECT_NE(std::strstr(refusal.message(), "'malloc'"), nullptr) << refusal.message();
  ASSERT_NE(refusal.info(), nullptr);
  EXPECT_EQ(refusal.info()->budget, kBudget);
  EXPECT_STREQ(refusal.info()->setting, "dram");
  EXPECT_GE(objects.size(), 14 * kMiB / 10'240);
  EXPECT_LE(context->stats().dram_used, kBudget);
  EXPECT_EQ(context->malloc_at(kDram, 2 * kBudget).code(), Code::no_capacity);
  Buffer buffer = make_buffer(*context, 4 * kMiB, "other");
  auto view = buffer.acquire(kWrite, 0, 0, Timeout::seconds(60));
  EXPECT_EQ(view.code(), Code::no_capacity);
  // No request waits for memory that only the program can free.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  buffer.reset();

  // The freed memory serves the next allocation at once, also in a larger piece.
  for (const Object& each : objects) {
    end(each);
  }
  auto large = object(kDram, 12 * kMiB, 7);
  ASSERT_TRUE(large.ok()) << large.message();
  EXPECT_EQ(context->stats().placed_used, 12 * kMiB);
  end(*large);
}

// Objects of a memory are there and nowhere else, although others have room. A view of a buffer
// that prefers the memory makes room for them.
TEST_P(InEachPlace, a_full_memory_refuses_its_objects_by_name_and_leaves_the_others_alone) {
  if (GetParam() == kTiered) {
    GTEST_SKIP() << "these move";
  }
  Buffer buffer = make_buffer(*context, 8 * kMiB, "leaves");
  ASSERT_TRUE(buffer.prefer(memory()).ok());
  ASSERT_TRUE(write_pattern(buffer, 1).ok());
  std::vector<Object> objects;
  Result<Object> made = object(GetParam(), 100'000, 0);
  for (; made.ok() && objects.size() < 1000; made = object(GetParam(), 100'000, objects.size())) {
    objects.push_back(*made);
  }
  ASSERT_EQ(made.code(), Code::no_capacity);
  EXPECT_GE(objects.size(), 12 * kMiB / 102'400);
  EXPECT_LE(used(), kBudget);
  EXPECT_EQ(made.status().info()->tier, memory());
  EXPECT_EQ(made.status().info()->budget, kBudget);
  EXPECT_STREQ(made.status().info()->setting, memory().kind == Kind::numa   ? "numa"
                                              : memory().kind == Kind::pmem ? "pmem"
                                                                            : "dram");
  const Stats stats = context->stats();
  for (const TierStats& tier : std::span(stats.tiers).first(stats.tier_count)) {
    if (tier.place != memory() && tier.place.kind != Kind::block) {
      EXPECT_LE(tier.used, 9 * kMiB) << "an object is in another memory";
    }
  }
  for (const Object& each : objects) {
    end(each);
  }
  EXPECT_EQ(wrong_words(buffer, 1), 0u);
}

TEST_F(PlacedMemory, what_cannot_be_is_refused_by_name) {
  const auto says = [&](Place place, std::uint64_t bytes, std::uint64_t align, Code code,
                        const char* word) {
    const Result<void*> block = context->malloc_at(place, bytes, align);
    EXPECT_EQ(block.code(), code);
    EXPECT_NE(std::strstr(block.message(), word), nullptr) << block.message();
  };
  says({Kind::block, 0}, 8, 16, Code::unsupported, "cannot address block 0");
  says({Kind::gpu, 0}, 8, 16, Code::unavailable, "gpu 0 is not a tier");
  says({Kind::numa, 1}, 8, 16, Code::unavailable, "numa 1 is not a tier");
  says({Kind::dram, 1}, 8, 16, Code::unavailable, "dram 1 is not a tier");
  says(kDram, ~std::uint64_t{0}, 16, Code::invalid_argument, "18446744073709551615 bytes");
  says(kDram, 8, 24, Code::invalid_argument, "alignment 24");
  says(kDram, 8, 0, Code::invalid_argument, "alignment 0");
  says(kDram, 8, 128 * kMiB, Code::invalid_argument, "alignment 134217728");
  EXPECT_EQ(context->stats().placed_held, 0u);
}

TEST_F(PlacedMemory, without_mapped_buffers_any_place_is_dram) {
  open("; userfault=off");
  ASSERT_FALSE(moves);
  auto made = object(kTiered, 5000, 1);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_GT(context->stats().dram_pinned, 0u);
  end(*made);
}

TEST_F(PlacedMemory, a_child_of_fork_that_does_not_follow_has_no_heap) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  auto made = object(kDram, 100, 1);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(ended_well(child_that([&] {
    return context->malloc_at(kDram, 1).code() == Code::shut_down &&
           context->free_ptr(made->words).code() == Code::shut_down;
  })));
  end(*made);
}

// Objects that stay in a memory stay with the parent. A small one is in a magazine of the thread.
TEST_F(PlacedMemory, child_of_fork_follows_then_it_has_objects_of_its_own_on_the_node) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  const std::string more = "; fork=follow; numa=0:16M";
  if (auto probe = Context::create("dram=16M; nvme=off" + more); !probe.ok()) {
    GTEST_SKIP() << probe.message();
  }
  open(more);
  auto large = object(kNode, 3000, 1), small = object(kNode, 64, 2), freed = object(kNode, 64, 3);
  ASSERT_TRUE(large.ok() && small.ok() && freed.ok());
  end(*freed);
  EXPECT_TRUE(ended_well(child_that([&] {
    bool good = context->usable_size(large->words).code() == Code::stale_handle &&
                context->usable_size(small->words).code() == Code::stale_handle;
    for (std::uint64_t n = 0; n < 1000; ++n) {
      auto made = object(kNode, 64, n);
      good = good && made.ok() && made->words != small->words && made->words != freed->words &&
             wrong(made->all(), n) == 0 && context->free_ptr(made->words).ok();
    }
    return good && context->free_ptr(large->words).ok() && context->free_ptr(small->words).ok();
  })));
  end(*large);
  end(*small);
}

// Parent and child continue with the same pointers, each with its own bytes. Other threads of the
// parent allocate during the fork.
TEST_F(PlacedMemory, parent_and_child_go_on_with_a_heap_each) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  open("; fork=follow");
  if (!moves) {
    GTEST_SKIP() << "no mapped buffers here";
  }
  std::vector<Object> objects;
  for (std::uint64_t i = 0; i < 2 * kBudget / 2048; ++i) {
    auto made = object(kTiered, 2048, i);
    ASSERT_TRUE(made.ok()) << made.message();
    objects.push_back(*made);
  }
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::vector<std::thread> threads;
  // The address sanitizer's allocator does not survive a fork while other threads use it.
  for (int t = 0; t < (kAddressSanitizer ? 0 : 2); ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        auto made = object(kTiered, 8 + rounds % 400'000 / 8 * 8, rounds);
        if (!made.ok()) {
          ADD_FAILURE() << made.message();
          return;
        }
        end(*made);
        rounds += 997;
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    const pid_t child = child_that([&] {
      bool good = true;
      for (Object& each : objects) {
        good = good && wrong(each.all(), each.seed) == 0;
        fill(each.all(), each.seed + 1'000'000);
      }
      for (std::uint64_t n = 0; n < 1000; ++n) {
        auto made = object(kTiered, 3000, n);
        good = good && made.ok() && context->free_ptr(objects[n].words).ok() &&
               wrong(made->all(), n) == 0;
      }
      return good && wrong(objects.back().all(), objects.back().seed + 1'000'000) == 0;
    });
    EXPECT_TRUE(ended_well(child));
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(threads.empty() || rounds > 0);
  for (const Object& each : objects) {
    end(each);
  }
}

}  // namespace
}  // namespace tiermem::test

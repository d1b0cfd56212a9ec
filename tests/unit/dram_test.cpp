// A host memory's accounting, slabs and domains. Windows are in dram_windows_test.cpp, touches
// without a view in dram_faults_test.cpp, several workers in dram_workers_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tier/host_space.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = kKiB * 1024;

std::unique_ptr<HostSpace> make(std::uint64_t budget) {
  auto space = HostSpace::create(
      {.memories = {{.budget = budget}}, .window_reserve_bytes = std::uint64_t{8} << 30});
  EXPECT_TRUE(space.ok()) << space.message();
  return std::move(*space);
}

std::uint64_t trim(HostSpace& space, std::uint64_t bytes) {
  const std::uint64_t chosen = space.memory().begin_trim(bytes);
  space.memory().run_trim();
  space.memory().finish_trim();
  return chosen;
}

bool all(const std::byte* data, std::uint64_t bytes, std::byte value) {
  return std::all_of(data, data + bytes, [&](std::byte b) { return b == value; });
}

FrameId get(HostSpace& space, Pool pool, std::uint64_t bytes, std::uint64_t domain = 0) {
  const FrameId frame = space.memory().acquire_frame({pool, bytes, domain});
  if (frame.valid() && space.memory().needs_populate(frame)) {
    const Status status = space.memory().populate(frame, false, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return frame;
}

TEST(Dram, a_fresh_frame_is_charged_and_needs_pages) {
  auto space = make(8 * kMiB);
  const FrameId frame = space->memory().acquire_frame({Pool::locked, 2 * kMiB, 0});
  ASSERT_TRUE(frame.valid());
  EXPECT_TRUE(space->memory().needs_populate(frame));
  EXPECT_EQ(space->memory().usage().in_use, 2 * kMiB);
  ASSERT_TRUE(space->memory().populate(frame, true, nullptr).ok());
  EXPECT_FALSE(space->memory().needs_populate(frame));
  EXPECT_TRUE(all(space->bytes_at(frame, nullptr), 2 * kMiB, std::byte{0}));
  EXPECT_EQ(space->counters().cleared_bytes, 0U) << "fresh pages are zero already";
}

TEST(Dram, frames_of_every_size_have_aligned_homes_that_hold_bytes) {
  auto space = make(256 * kMiB);
  for (std::uint64_t bytes = kSmallestExtent; bytes <= kLargestExtent; bytes *= 2) {
    for (const Pool pool : {Pool::locked, space->window_pool(bytes)}) {
      const FrameId frame = get(*space, pool, bytes);
      ASSERT_TRUE(frame.valid()) << bytes;
      std::byte* const home = space->bytes_at(frame, nullptr);
      ASSERT_NE(home, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uint64_t>(home) % bytes, 0U);
      std::memset(home, 0x5a, bytes);
      EXPECT_TRUE(all(home, bytes, std::byte{0x5a}));
      space->memory().return_frame(frame);
    }
    trim(*space, ~std::uint64_t{0});
  }
  EXPECT_EQ(space->memory().usage().used(), 0U);
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST(Dram, wrong_sizes_and_pools_get_no_frame) {
  auto space = make(256 * kMiB);
  EXPECT_FALSE(space->memory().acquire_frame({Pool::locked, 3 * kMiB, 0}).valid());
  EXPECT_FALSE(space->memory().acquire_frame({Pool::locked, 2048, 0}).valid());
  EXPECT_FALSE(space->memory().acquire_frame({Pool::locked, 128 * kMiB, 0}).valid());
  EXPECT_FALSE(space->memory().acquire_frame({Pool::movable, 64 * kKiB, 0}).valid());
  EXPECT_FALSE(space->memory().acquire_frame({Pool::small, 2 * kMiB, 0}).valid());
  EXPECT_EQ(space->memory().usage().used(), 0U);
}

TEST(Dram, trim_is_in_progress_then_no_other_begins) {
  auto space = make(8 * kMiB);
  space->memory().return_frame(get(*space, Pool::movable, 2 * kMiB));
  EXPECT_EQ(space->memory().begin_trim(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(space->memory().begin_trim(2 * kMiB), 0U);
  EXPECT_TRUE(space->memory().test_consistent());
  space->memory().run_trim();
  space->memory().finish_trim();
  EXPECT_EQ(space->memory().usage().used(), 0U);
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST(Dram, a_lowered_budget_stops_caching_and_used_stays_honest) {
  auto space = make(16 * kMiB);
  std::vector<FrameId> held;
  for (int i = 0; i < 8; ++i) {
    held.push_back(get(*space, Pool::locked, 2 * kMiB));
  }
  space->memory().set_budget(8 * kMiB);
  for (int i = 0; i < 4; ++i) {
    space->memory().return_frame(held[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(space->memory().usage().used(), 16 * kMiB) << "their pages are still there";
  EXPECT_EQ(space->memory().usage().cached, 0U);
  EXPECT_EQ(space->memory().trimmable(), 8 * kMiB);
  EXPECT_FALSE(space->memory().acquire_frame({Pool::locked, 2 * kMiB, 0}).valid());
  EXPECT_EQ(trim(*space, 8 * kMiB), 8 * kMiB);
  EXPECT_EQ(space->memory().usage().used(), 8 * kMiB);
  space->memory().return_frame(held[4]);
  EXPECT_EQ(space->memory().usage().cached, 2 * kMiB);
  EXPECT_TRUE(get(*space, Pool::locked, 2 * kMiB).valid());
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST(Dram, a_frame_referenced_from_outside_is_not_given_to_the_next) {
  auto space = make(16 * kMiB);
  const FrameId frame = get(*space, Pool::movable, 2 * kMiB);
  const FrameId small = get(*space, Pool::locked, 64 * kKiB);
  space->memory().mark_referenced(frame);
  space->memory().mark_referenced(small);
  space->memory().return_frame(frame);
  space->memory().return_frame(small);
  EXPECT_EQ(space->memory().usage().cached, 0U);
  EXPECT_EQ(space->memory().usage().in_use, 4 * kMiB);
  EXPECT_EQ(trim(*space, 4 * kMiB), 4 * kMiB);
  const FrameId again = get(*space, Pool::movable, 2 * kMiB);
  space->memory().return_frame(again);
  EXPECT_EQ(space->memory().usage().cached, 2 * kMiB) << "the mark does not outlive the pages";
}

TEST(Dram, recycling_within_a_domain_does_not_clear) {
  auto space = make(16 * kMiB);
  const FrameId first = get(*space, Pool::locked, 2 * kMiB, 3);
  std::memset(space->bytes_at(first, nullptr), 0x22, 2 * kMiB);
  space->memory().return_frame(first);
  const FrameId again = space->memory().acquire_frame({Pool::locked, 2 * kMiB, 3});
  EXPECT_FALSE(space->memory().needs_populate(again));
  EXPECT_TRUE(all(space->bytes_at(again, nullptr), 2 * kMiB, std::byte{0x22}));
  EXPECT_EQ(space->counters().cleared_bytes, 0U);
  ASSERT_TRUE(space->memory().populate(again, true, nullptr).ok());
  EXPECT_TRUE(all(space->bytes_at(again, nullptr), 2 * kMiB, std::byte{0})) << "unless asked to";
}

TEST(Dram, the_same_domains_cached_frames_go_first) {
  auto space = make(16 * kMiB);
  const FrameId one = get(*space, Pool::locked, 2 * kMiB, 1);
  const FrameId two = get(*space, Pool::locked, 2 * kMiB, 2);
  const FrameId three = get(*space, Pool::locked, 2 * kMiB, 3);
  space->memory().return_frame(one);
  space->memory().return_frame(two);
  space->memory().return_frame(three);
  EXPECT_EQ(space->memory().acquire_frame({Pool::locked, 2 * kMiB, 2}), two);
  EXPECT_EQ(space->memory().acquire_frame({Pool::locked, 2 * kMiB, 9}), one) << "else the coldest";
}

TEST(Dram, small_locked_frames_share_a_chunk_that_is_charged_whole) {
  auto space = make(4 * kMiB);
  std::vector<FrameId> held;
  std::set<std::byte*> homes;
  for (int i = 0; i < 32; ++i) {
    held.push_back(get(*space, Pool::locked, 64 * kKiB));
    ASSERT_TRUE(held.back().valid());
    homes.insert(space->bytes_at(held.back(), nullptr));
    EXPECT_EQ(space->memory().usage().in_use, 2 * kMiB);
  }
  EXPECT_EQ(homes.size(), 32U);
  EXPECT_EQ(*homes.rbegin() - *homes.begin(), 31 * 64 * 1024);
  EXPECT_EQ(space->counters().populated, 1U) << "one huge page for all";
  held.push_back(get(*space, Pool::locked, 64 * kKiB));
  EXPECT_EQ(space->memory().usage().in_use, 4 * kMiB);
  EXPECT_FALSE(space->memory().acquire_frame({Pool::locked, 4 * kKiB, 0}).valid())
      << "no third chunk";
  for (const FrameId frame : held) {
    EXPECT_GT(space->memory().usage().in_use, 0U);
    space->memory().return_frame(frame);
  }
  EXPECT_EQ(space->memory().usage().in_use, 0U);
  EXPECT_EQ(space->memory().usage().cached, 4 * kMiB);
  EXPECT_TRUE(get(*space, Pool::locked, 4 * kKiB).valid()) << "an empty chunk is cut anew";
  EXPECT_TRUE(get(*space, Pool::locked, 2 * kMiB).valid()) << "or used whole";
  EXPECT_TRUE(space->memory().test_consistent());
}

TEST(Dram, neighbours_in_a_chunk_do_not_see_another_domains_bytes) {
  auto space = make(2 * kMiB);
  const FrameId a = get(*space, Pool::locked, 512 * kKiB, 1);
  const FrameId b = get(*space, Pool::locked, 512 * kKiB, 2);
  std::memset(space->bytes_at(a, nullptr), 0xaa, 512 * kKiB);
  std::memset(space->bytes_at(b, nullptr), 0xbb, 512 * kKiB);
  space->memory().return_frame(a);
  space->memory().return_frame(b);
  // The chunk is empty, holds bytes of both domains, and is now one frame.
  const FrameId whole = space->memory().acquire_frame({Pool::locked, 2 * kMiB, 1});
  ASSERT_TRUE(whole.valid());
  EXPECT_TRUE(space->memory().needs_populate(whole));
  ASSERT_TRUE(space->memory().populate(whole, false, nullptr).ok());
  EXPECT_TRUE(all(space->bytes_at(whole, nullptr), 2 * kMiB, std::byte{0}));
}

TEST(Dram, huge_pages_are_asked_for_and_counted) {
  auto space = make(64 * kMiB);
  if (!space->facts().huge_pages) {
    GTEST_SKIP() << space->facts().huge_reason;
  }
  get(*space, Pool::locked, 16 * kMiB);
  get(*space, Pool::movable, 16 * kMiB);
  EXPECT_EQ(space->counters().huge_asked, 16U);
  EXPECT_LE(space->counters().huge_got, 16U);
}

TEST(Dram, required_huge_pages_come_or_fail) {
  auto space = HostSpace::create({.memories = {{.budget = 64 * kMiB}},
                                  .huge_pages = HugePages::require,
                                  .window_reserve_bytes = std::uint64_t{1} << 30});
  if (!space.ok()) {
    EXPECT_EQ(space.code(), Code::unsupported);
    GTEST_SKIP() << space.message();
  }
  const FrameId frame = (*space)->memory().acquire_frame({Pool::movable, 4 * kMiB, 0});
  const Status populated = (*space)->memory().populate(frame, false, nullptr);
  const auto huge = host::huge_bytes((*space)->bytes_at(frame, nullptr), 4 * kMiB);
  if (!huge.has_value()) {
    GTEST_SKIP() << "PAGEMAP_SCAN is missing";
  }
  EXPECT_EQ(*huge, populated.ok() ? 4 * kMiB : 0) << populated.message();
}

TEST(Dram, without_huge_pages_none_is_made) {
  auto space = HostSpace::create({.memories = {{.budget = 64 * kMiB}},
                                  .huge_pages = HugePages::off,
                                  .window_reserve_bytes = std::uint64_t{1} << 30});
  ASSERT_TRUE(space.ok());
  const FrameId frame = get(**space, Pool::locked, 4 * kMiB);
  EXPECT_EQ(host::huge_bytes((*space)->bytes_at(frame, nullptr), 4 * kMiB).value_or(0), 0U);
}

// A model of the accounting: frames in use, cached frames by class with their age, frames that are
// leaving. Slab chunks are identified by their addresses.
class BooksModel {
 public:
  explicit BooksModel(HostSpace& space, std::uint64_t budget) : space_(space), budget_(budget) {}

  void acquire(Pool pool, std::uint64_t bytes) {
    const bool slab = pool == Pool::locked && bytes < 2 * kMiB;
    const std::uint64_t charge = slab ? 2 * kMiB : bytes;
    const Key key{pool, charge};
    bool expected = false;
    if (slab && has_room(bytes)) {
      expected = true;
    } else if (count(key) > 0 && in_use_ + charge <= budget_) {
      take_youngest(key);
      in_use_ += charge;
      expected = true;
    } else if (in_use_ + cached() + charge <= budget_) {
      in_use_ += charge;
      expected = true;
    }
    const FrameId frame = get(space_, pool, bytes);
    ASSERT_EQ(frame.valid(), expected);
    if (!expected) {
      return;
    }
    held_.push_back({frame, pool, bytes});
    if (slab) {
      Chunk& chunk = chunks_[chunk_of(frame)];
      ASSERT_TRUE(chunk.frames == 0 || chunk.bytes == bytes);
      chunk.bytes = bytes;
      ++chunk.frames;
    }
  }

  void give_back(std::size_t which) {
    const Held gone = held_[which];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool slab = gone.pool == Pool::locked && gone.bytes < 2 * kMiB;
    const std::uint64_t chunk = slab ? chunk_of(gone.frame) : 0;
    space_.memory().return_frame(gone.frame);
    if (slab && --chunks_[chunk].frames > 0) {
      return;
    }
    chunks_.erase(chunk);
    const std::uint64_t charge = slab ? 2 * kMiB : gone.bytes;
    if (in_use_ + cached() - leaving_bytes() > budget_) {
      leaving_.push_back(charge);
    } else {
      in_use_ -= charge;
      cached_.push_back({gone.pool, charge});
    }
  }

  void trim_some(std::uint64_t bytes) {
    std::uint64_t chosen = 0;
    while (!leaving_.empty()) {  // All of them, because their bytes are not needed.
      chosen += leaving_.back();
      in_use_ -= leaving_.back();
      leaving_.pop_back();
    }
    while (chosen < bytes && !cached_.empty()) {
      chosen += cached_.front().second;
      cached_.erase(cached_.begin());
    }
    ASSERT_EQ(trim(space_, bytes), chosen);
  }

  void set_budget(std::uint64_t bytes) {
    budget_ = bytes;
    space_.memory().set_budget(bytes);
  }

  void check() const {
    ASSERT_EQ(space_.memory().usage().in_use, in_use_);
    ASSERT_EQ(space_.memory().usage().cached, cached());
    ASSERT_EQ(space_.memory().trimmable(), cached() + leaving_bytes());
    std::uint64_t from_held = leaving_bytes();
    std::set<std::uint64_t> chunks;
    for (const Held& each : held_) {
      if (each.pool == Pool::locked && each.bytes < 2 * kMiB) {
        chunks.insert(chunk_of(each.frame));
      } else {
        from_held += each.bytes;
      }
    }
    ASSERT_EQ(from_held + chunks.size() * 2 * kMiB, in_use_);
  }

  std::size_t held() const { return held_.size(); }

 private:
  using Key = std::pair<Pool, std::uint64_t>;
  struct Held {
    FrameId frame;
    Pool pool;
    std::uint64_t bytes;
  };
  struct Chunk {
    std::uint64_t bytes = 0, frames = 0;
  };

  std::uint64_t chunk_of(FrameId frame) const {
    return reinterpret_cast<std::uint64_t>(space_.bytes_at(frame, nullptr)) / (2 * kMiB);
  }
  bool has_room(std::uint64_t bytes) const {
    return std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& each) {
      return each.second.bytes == bytes && each.second.frames < 2 * kMiB / bytes;
    });
  }
  std::uint64_t count(const Key& key) const {
    return static_cast<std::uint64_t>(std::count(cached_.begin(), cached_.end(), key));
  }
  void take_youngest(const Key& key) {
    cached_.erase(std::next(std::find(cached_.rbegin(), cached_.rend(), key)).base());
  }
  std::uint64_t cached() const {
    std::uint64_t sum = 0;
    for (const Key& key : cached_) {
      sum += key.second;
    }
    return sum;
  }
  std::uint64_t leaving_bytes() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : leaving_) {
      sum += bytes;
    }
    return sum;
  }

  HostSpace& space_;
  std::uint64_t budget_;
  std::uint64_t in_use_ = 0;
  std::vector<Key> cached_;  // Oldest first.
  std::vector<std::uint64_t> leaving_;
  std::vector<Held> held_;
  std::map<std::uint64_t, Chunk> chunks_;
};

// Property: after any sequence of calls the accounting equals the model's, and also the accounting
// derived again from the frames.
TEST(Dram, random_calls_keep_the_books_exact) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto space = make(32 * kMiB);
  BooksModel model(*space, 32 * kMiB);
  for (int round = 0; round < 4'000; ++round) {
    const auto dice = random() % 100;
    if (dice < 50) {
      const std::uint64_t bytes = kSmallestExtent << random() % 12;
      const bool window = random() % 2 == 0;
      model.acquire(window ? space->window_pool(bytes) : Pool::locked, bytes);
    } else if (dice < 92 && model.held() > 0) {
      model.give_back(random() % model.held());
    } else if (dice < 97) {
      model.trim_some(random() % (4 * kMiB));
    } else {
      model.set_budget((16 + random() % 32) * kMiB);
    }
    if (testing::Test::HasFatalFailure()) {
      return;
    }
    model.check();
    if (round % 100 == 0) {
      ASSERT_TRUE(space->memory().test_consistent());
    }
  }
  while (model.held() > 0) {
    model.give_back(0);
  }
  model.trim_some(~std::uint64_t{0});
  EXPECT_EQ(space->memory().usage().used(), 0U);
  EXPECT_TRUE(space->memory().test_consistent());
}

}  // namespace
}  // namespace tiermem

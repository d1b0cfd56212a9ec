// Windows cut from a few large ranges: alignment, coalescing, and the number of mappings.
#include "tier/window_arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/mappings.hpp"
#include "support/sanitizers.hpp"
#include "unit/in_child.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

WindowArenaOptions options(std::uint64_t reserve) {
  return {.reserve_bytes = reserve, .least_bytes = reserve};
}

std::uint64_t number(const std::byte* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

TEST(WindowArena, windows_are_aligned_to_their_extents) {
  WindowArena arena(options(1024 * kMiB));
  for (const std::uint64_t alignment : {4 * kMiB / 1024, 2 * kMiB, 16 * kMiB, 64 * kMiB}) {
    auto window = arena.reserve(alignment * 3, alignment);
    ASSERT_TRUE(window.ok()) << window.message();
    EXPECT_EQ(number(*window) % alignment, 0U);
    EXPECT_EQ(arena.size_of(*window), alignment * 3);
  }
}

TEST(WindowArena, a_size_is_rounded_up_to_whole_extents) {
  WindowArena arena(options(64 * kMiB));
  auto window = arena.reserve(2 * kMiB + 1, 2 * kMiB);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(arena.size_of(*window), 4 * kMiB);
}

TEST(WindowArena, nonsense_is_refused) {
  WindowArena arena(options(64 * kMiB));
  EXPECT_EQ(arena.reserve(0, 2 * kMiB).code(), Code::invalid_argument);
  EXPECT_EQ(arena.reserve(kMiB, 3 * kMiB).code(), Code::invalid_argument);
  EXPECT_EQ(arena.reserve(kMiB, 512).code(), Code::invalid_argument);
  EXPECT_EQ(arena.reserve(~std::uint64_t{0}, 4096).code(), Code::invalid_argument);
}

TEST(WindowArena, what_the_kernel_has_no_room_for_is_no_capacity) {
  WindowArena arena(options(64 * kMiB));
  auto window = arena.reserve(std::uint64_t{1} << 50, 2 * kMiB);
  EXPECT_EQ(window.code(), Code::no_capacity);
  EXPECT_EQ(arena.reserved_bytes(), 0U);
}

TEST(WindowArena, a_reserve_that_is_refused_is_halved) {
  WindowArena arena({.reserve_bytes = std::uint64_t{1} << 50, .least_bytes = kMiB * 1024});
  auto window = arena.reserve(2 * kMiB, 2 * kMiB);
  ASSERT_TRUE(window.ok()) << window.message();
  EXPECT_LT(arena.reserved_bytes(), std::uint64_t{1} << 50);
}

TEST(WindowArena, a_full_range_is_followed_by_another) {
  WindowArena arena(options(16 * kMiB));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(arena.reserve(2 * kMiB, 2 * kMiB).ok());
  }
  EXPECT_EQ(arena.reserved_bytes(), 48 * kMiB);
  ASSERT_TRUE(arena.reserve(100 * kMiB, 2 * kMiB).ok());
}

// A signal handler that detects touches has a limited number of ranges.
TEST(WindowArena, a_range_whose_touches_nobody_would_see_is_refused) {
  auto trap = TouchTrap::create();
  ASSERT_TRUE(trap.ok()) << trap.message();
  WindowArena arena({.reserve_bytes = 2 * kMiB, .least_bytes = 2 * kMiB, .trap = trap->get()});
  std::uint64_t ranges = 0;
  Result<std::byte*> window = arena.reserve(2 * kMiB, 2 * kMiB);
  for (; window.ok() && ranges < 1000; ++ranges) {
    window = arena.reserve(2 * kMiB, 2 * kMiB);
  }
  EXPECT_EQ(window.code(), Code::no_capacity);
  EXPECT_EQ(arena.reserved_bytes(), ranges * 2 * kMiB) << "and not kept either";
}

// Property: windows never overlap and lie in reserved ranges. After all are released, one window as
// large as the range fits again.
TEST(WindowArena, random_windows_do_not_overlap_and_coalesce) {
  if (host::address_space_limit() < std::uint64_t{64} << 30) {
    GTEST_SKIP() << "RLIMIT_AS leaves too little address space";
  }
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  WindowArena arena(options(2048 * kMiB));
  std::map<std::uint64_t, std::uint64_t> held;
  for (int round = 0; round < 20'000; ++round) {
    if (held.empty() || (random() % 5 != 0 && held.size() < 120)) {
      const std::uint64_t alignment = std::uint64_t{4096} << random() % 13;
      const std::uint64_t bytes = alignment * (1 + random() % 4);
      if (arena.window_bytes() + bytes + alignment > 1024 * kMiB) {
        continue;
      }
      auto window = arena.reserve(bytes, alignment);
      ASSERT_TRUE(window.ok()) << window.message();
      const std::uint64_t address = number(*window);
      ASSERT_EQ(address % alignment, 0U);
      const auto after = held.lower_bound(address);
      ASSERT_TRUE(after == held.end() || after->first >= address + bytes);
      ASSERT_TRUE(after == held.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= address);
      held.emplace(address, bytes);
    } else {
      auto victim = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
      arena.release(reinterpret_cast<std::byte*>(victim->first));
      held.erase(victim);
    }
  }
  for (const auto& [address, bytes] : held) {
    arena.release(reinterpret_cast<std::byte*>(address));
  }
  EXPECT_EQ(arena.window_bytes(), 0U);
  const std::uint64_t reserved = arena.reserved_bytes();
  ASSERT_TRUE(arena.reserve(2048 * kMiB, 4096).ok());
  EXPECT_EQ(arena.reserved_bytes(), reserved);
}

TEST(WindowArena, ten_thousand_windows_are_few_mappings) {
  if (host::address_space_limit() < std::uint64_t{64} << 30) {
    GTEST_SKIP() << "RLIMIT_AS leaves too little address space";
  }
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer makes mappings of its own";
#endif
  const std::uint64_t before = host::map_count();
  WindowArena arena(options(std::uint64_t{32} << 30));
  std::vector<std::byte*> windows;
  for (int i = 0; i < 10'000; ++i) {
    auto window = arena.reserve(2 * kMiB, 2 * kMiB);
    ASSERT_TRUE(window.ok()) << window.message();
    windows.push_back(*window);
  }
  for (std::size_t i = 0; i < windows.size(); i += 2) {
    arena.release(windows[i]);
  }
  EXPECT_LT(host::map_count(), before + 20);
}

// Addresses outside all windows cost no writable memory and no time in a core dump.
TEST(WindowArena, addresses_of_no_window_are_closed) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer makes mappings of its own";
  }
  const test::Mappings before = test::mappings();
  WindowArena arena(options(8192 * kMiB));
  auto first = arena.reserve(64 * kMiB, 2 * kMiB);
  auto second = arena.reserve(1024 * kMiB, 2 * kMiB);
  auto third = arena.reserve(64 * kMiB, 2 * kMiB);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  (*second)[1023 * kMiB] = std::byte{1};
  test::Mappings now = test::mappings();
  EXPECT_GE(now.writable - before.writable, arena.window_bytes());
  EXPECT_LE(now.writable - before.writable, arena.window_bytes() + arena.idle_bytes() + kMiB);
  EXPECT_GE(now.dumped - before.dumped, arena.window_bytes());
  EXPECT_LE(arena.idle_bytes(), 16 * kMiB);
  arena.release(*second);
  now = test::mappings();
  EXPECT_LE(now.writable - before.writable, 128 * kMiB + arena.idle_bytes() + kMiB);
  EXPECT_LE(now.dumped - before.dumped, 128 * kMiB + arena.idle_bytes() + kMiB);
  // The addresses can be reserved again.
  auto again = arena.reserve(1024 * kMiB, 2 * kMiB);
  ASSERT_TRUE(again.ok());
  (*again)[0] = (*again)[1024 * kMiB - 1] = std::byte{2};
  (*first)[0] = (*third)[64 * kMiB - 1] = std::byte{3};
}

// Property: each byte of a live window can be written. Holes stay few and small, and mappings few.
TEST(WindowArena, random_windows_can_be_written_and_holes_are_closed) {
  if (host::address_space_limit() < std::uint64_t{64} << 30 || test::kSanitized) {
    GTEST_SKIP() << "RLIMIT_AS leaves too little address space, or a sanitizer maps its own";
  }
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::uint64_t mappings = host::map_count();
  WindowArena arena(
      {.reserve_bytes = 16384 * kMiB, .least_bytes = 16384 * kMiB, .map_limit = 3200});
  std::vector<std::byte*> held;
  for (int round = 0; round < 3'000; ++round) {
    if (held.empty() || (random() % 5 >= 2 && held.size() < 60)) {
      const std::uint64_t bytes = std::uint64_t{4096} << random() % 15 << random() % 3;
      auto window = arena.reserve(bytes, 4096);
      ASSERT_TRUE(window.ok()) << window.message();
      (*window)[0] = (*window)[bytes / 2] = (*window)[bytes - 1] = std::byte{1};
      held.push_back(*window);
    } else {
      const std::size_t at = random() % held.size();
      arena.release(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
    // The bound excludes windows that are opened in advance and holes of less than 64 KiB.
    ASSERT_LE(arena.idle_bytes(), std::max(64 * kMiB, arena.window_bytes()) + 24 * kMiB);
  }
  EXPECT_LE(host::map_count(), mappings + 2 * (60 + 100) + 20);
  while (!held.empty()) {
    arena.release(held.back());
    held.pop_back();
  }
  EXPECT_LE(arena.idle_bytes(), 64 * kMiB);
}

// The kernel refuses more writable memory. The window is refused with the limit's name, and its
// addresses are not lost.
TEST(WindowArena, a_window_that_may_not_be_written_is_refused_by_name) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer needs more memory than the limit";
  }
  EXPECT_TRUE(in_child([] {
    WindowArena arena(options(1024 * kMiB));
    if (!arena.reserve(2 * kMiB, 2 * kMiB).ok()) {
      return false;
    }
    const std::uint64_t limit = test::status_bytes("VmData:") + 64 * kMiB;
    const rlimit all{limit, limit};
    if (::setrlimit(RLIMIT_DATA, &all) != 0) {
      return false;
    }
    auto refused = arena.reserve(512 * kMiB, 2 * kMiB);
    auto smaller = arena.reserve(32 * kMiB, 2 * kMiB);
    return refused.code() == Code::no_capacity && smaller.ok() &&
           std::string(refused.message()).find("ulimit -d") != std::string::npos &&
           arena.reserved_bytes() == 1024 * kMiB;
  }));
}

// Returns whether the kernel may write at the address, without touching it.
bool can_be_written(std::byte* address) {
  int ends[2];
  if (pipe(ends) != 0) {
    return false;
  }
  const bool put = write(ends[1], "x", 1) == 1;
  const bool got = read(ends[0], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return put && got;
}

TEST(WindowArena, addresses_given_away_then_no_window_has_them) {
  WindowArena arena(options(64 * kMiB));
  std::byte* const window = *arena.reserve(kMiB, 64 << 10);
  std::byte* const part = window + (256 << 10);
  EXPECT_FALSE(arena.give_away(part, 64 << 10)) << "the window is there";
  arena.release(window);
  EXPECT_TRUE(arena.give_away(part, 64 << 10));
  EXPECT_TRUE(arena.give_away(part + (16 << 10), 32 << 10)) << "it was before";
  for (int i = 0; i < 600; ++i) {
    auto next = arena.reserve(64 << 10, 64 << 10);
    ASSERT_TRUE(next.ok()) << next.message();
    ASSERT_NE(*next, part);
  }
}

TEST(WindowArena, lent_pages_of_a_released_window_are_not_given_out_again) {
  WindowArena arena(options(64 * kMiB));
  LentPages lent;
  std::byte* const window = *arena.reserve(kMiB, 64 << 10);
  lent.add(window + (128 << 10), 64 << 10);
  arena.release(window, lent);
  for (int i = 0; i < 600; ++i) {
    auto next = arena.reserve(64 << 10, 64 << 10);
    ASSERT_TRUE(next.ok()) << next.message();
    ASSERT_NE(*next, window + (128 << 10));
  }
}

TEST(WindowArena, hole_that_is_touched_can_be_closed_and_is_opened_for_the_next_window) {
  WindowArena arena(options(64 * kMiB));
  std::byte* const window = *arena.reserve(kMiB, 64 << 10);
  EXPECT_FALSE(arena.close_at(window)) << "no hole";
  arena.release(window);
  EXPECT_TRUE(can_be_written(window)) << "small holes stay open";
  EXPECT_TRUE(arena.close_at(window + 5000));
  EXPECT_FALSE(can_be_written(window));
  ASSERT_EQ(*arena.reserve(kMiB, 64 << 10), window);
  EXPECT_TRUE(can_be_written(window));
  EXPECT_TRUE(can_be_written(window + kMiB - 1));
}

// Both touches are reported before the first one is answered.
TEST(WindowArena, hole_that_two_threads_touch_is_closed_once) {
  WindowArena arena(options(64 * kMiB));
  std::byte* const first = *arena.reserve(kMiB, 64 << 10);
  std::byte* const second = *arena.reserve(kMiB, 64 << 10);
  std::byte* const third = *arena.reserve(kMiB, 64 << 10);
  arena.release(first);
  ASSERT_TRUE(arena.close_at(first + 5000));
  arena.release(second);  // The hole has a closed part and an open one.
  const std::uint64_t idle = arena.idle_bytes();
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{5000}, kMiB - 1}) {
    EXPECT_TRUE(arena.close_at(first + offset));
    EXPECT_EQ(arena.idle_bytes(), idle);
    EXPECT_TRUE(can_be_written(second)) << "it was not touched";
  }
  EXPECT_TRUE(arena.close_at(second));
  EXPECT_EQ(arena.idle_bytes(), idle - kMiB);
  EXPECT_FALSE(can_be_written(second));
  EXPECT_FALSE(can_be_written(second + kMiB - 1));
  EXPECT_TRUE(can_be_written(third));
}

TEST(WindowArena, window_behind_a_hole_is_touched_then_nothing_is_closed) {
  WindowArena arena(options(64 * kMiB));
  std::byte* const hole = *arena.reserve(kMiB, 64 << 10);
  std::byte* const window = *arena.reserve(kMiB, 64 << 10);
  arena.release(hole);
  EXPECT_FALSE(arena.close_at(window + 5000));
  EXPECT_TRUE(can_be_written(window + 5000));
  EXPECT_TRUE(can_be_written(hole)) << "the touch was not of the hole";
}

TEST(WindowArena, window_is_altered_then_only_its_own_addresses_are) {
  WindowArena arena(options(64 * kMiB));
  std::byte* const window = *arena.reserve(kMiB, 64 << 10);
  std::byte* const hole = *arena.reserve(kMiB, 64 << 10);
  arena.release(hole);
  ASSERT_EQ(hole, window + kMiB);
  arena.alter(hole);
  EXPECT_FALSE(arena.altered(window)) << "the address behind it is not in it";
  arena.alter(window + kMiB - 1);
  EXPECT_TRUE(arena.altered(window));
  EXPECT_FALSE(arena.altered(hole));
  arena.release(window);
  ASSERT_EQ(*arena.reserve(kMiB, 64 << 10), window);
  EXPECT_FALSE(arena.altered(window)) << "it is another window";
}

TEST(WindowArena, stretch_ends_where_addresses_begin_or_cease_to_be_the_arenas) {
  WindowArena arena(options(16 * kMiB));
  std::byte* const window = *arena.reserve(16 * kMiB, 2 * kMiB);
  const std::uint64_t size = arena.reserved_bytes();
  std::byte* begin = window;
  bool own = true;
  while (arena.stretch(begin - 4096, 4096, own) == 4096 && own &&
         static_cast<std::uint64_t>(window - begin) < 2 * kMiB) {
    begin -= 4096;
  }
  ASSERT_FALSE(own);
  EXPECT_EQ(arena.stretch(begin - 8192, 8 * kMiB, own), 8192U);
  EXPECT_FALSE(own);
  EXPECT_EQ(arena.stretch(begin, size + 4096, own), size);
  EXPECT_TRUE(own);
  EXPECT_EQ(arena.stretch(begin + size - 4096, kMiB, own), 4096U);
  EXPECT_TRUE(own);
  EXPECT_EQ(arena.stretch(begin + size, kMiB, own), kMiB);
  EXPECT_FALSE(own) << "it is told for each address anew";
  EXPECT_EQ(arena.stretch(begin + 4096, 4096, own), 4096U);
  EXPECT_TRUE(own);
}

// Other code of the child has mapped a page in the middle.
TEST(WindowArena, a_child_without_the_ranges_closes_their_addresses_and_uses_others) {
  WindowArenaOptions not_inherited = options(16 * kMiB);
  not_inherited.inherited = false;
  WindowArena arena(not_inherited);
  std::byte* const window = *arena.reserve(8 * kMiB, 2 * kMiB);
  std::memset(window, 1, 8 * kMiB);
  EXPECT_TRUE(in_child([&] {
    const auto is_mapped = [](std::byte* at) {
      unsigned char resident = 0;
      return ::mincore(at, 4096, &resident) == 0;
    };
    std::byte* const taken = window + 3 * kMiB + 4096;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (is_mapped(window) || ::mmap(taken, 4096, PROT_READ | PROT_WRITE, kFlags, -1, 0) != taken) {
      return false;
    }
    *taken = std::byte{2};
    arena.leave_to_parent();
    bool closed = true;
    for (std::byte* at = window; at < window + 8 * kMiB; at += 4096) {
      closed = closed && is_mapped(at);  // Nothing else can be mapped there.
    }
    std::byte* const other = *arena.reserve(8 * kMiB, 2 * kMiB);
    std::memset(other, 3, 8 * kMiB);
    return closed && *taken == std::byte{2} && arena.window_bytes() == 8 * kMiB &&
           arena.size_of(window) == 0 && (other >= window + 8 * kMiB || window >= other + 8 * kMiB);
  }));
  EXPECT_EQ(window[3 * kMiB + 4096], std::byte{1});
}

}  // namespace
}  // namespace tiermem

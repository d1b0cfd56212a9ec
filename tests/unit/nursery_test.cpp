// The nursery under as many threads as it has slots, and more.
#include "tier/nursery.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "os/host_memory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kHome = 65536;

TEST(Nursery, more_threads_than_slots_fill_homes_then_each_home_has_its_zeroed_pages) {
  const Userfault userfault = Userfault::open();
  std::array<char, 200> reason{};
  if (!userfault.ok() || !userfault.probe_move(reason.data(), reason.size())) {
    GTEST_SKIP() << "no UFFDIO_MOVE here: " << reason.data();
  }
  auto nursery = Nursery::create(userfault, false);
  ASSERT_TRUE(nursery.ok()) << nursery.message();
  constexpr unsigned kThreads = 40, kRounds = 50;
  auto homes = host::reserve({.bytes = kThreads * kHome, .accessible = true});
  ASSERT_TRUE(homes.ok()) << homes.message();
  ASSERT_EQ(userfault.register_missing(homes->data(), homes->bytes()), 0);
  std::atomic<unsigned> failed{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::byte* const home = homes->data() + t * kHome;
      for (unsigned round = 0; round < kRounds; ++round) {
        const bool filled = (*nursery)->fill(home, kHome, false).ok();
        const bool zero = filled && std::all_of(home, home + kHome, [](std::byte each) {
                            return each == std::byte{0};
                          });
        std::fill(home, home + (filled ? kHome : 0), std::byte{0xEE});
        failed += zero && host::drop(home, kHome) == 0 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failed, 0u);
}

}  // namespace
}  // namespace tiermem

// Threads that wait for an absent page of a window, and the one call that lets each continue. These
// tests make no other wake-up, so a missing one leaves the thread waiting. With userfaultfd, a
// woken thread repeats its touch, and the touch is reported again. With the trap, a waiting touch
// is reported again every second, so those tests measure several in a row.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "dram_fixture.hpp"
#include "mapped_frame.hpp"
#include "os/host_memory.hpp"
#include "toucher.hpp"

namespace tiermem {
namespace {

using test::comes_true;

constexpr int kSoon = 5'000;  // Milliseconds.

class WaitingTouch : public MappedFrame {
 protected:
  std::byte* page() const { return window + 5 * host::kPage; }
  /// Expects that the thread waits and that its touch is reported.
  void expect_fault() {
    Fault fault;
    ASSERT_TRUE(space->next_fault(kSoon, fault));
    EXPECT_EQ(fault.address - page(), 0);
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(2 * host::kPage);
  /// Returns a whole page of `bytes`.
  const std::byte* some() const {
    const auto at = reinterpret_cast<std::uint64_t>(bytes.data());
    return bytes.data() + (host::kPage - at % host::kPage) % host::kPage;
  }
};

TEST_P(WaitingTouch, that_is_woken_is_made_again) {
  const Toucher toucher(page());
  expect_fault();
  space->wake(page() + 100);
  expect_fault();
  EXPECT_TRUE(toucher.waits());
  space->fill_hole(page());
  EXPECT_TRUE(toucher.goes_on());
}

TEST_P(WaitingTouch, of_a_hole_goes_on_where_a_page_has_come_meanwhile) {
  const Toucher toucher(page());
  expect_fault();
  ASSERT_EQ(bring_silently(*space, page(), some()), 0);
  EXPECT_TRUE(toucher.waits());
  space->fill_hole(page());
  EXPECT_TRUE(toucher.goes_on());
  EXPECT_EQ(*page(), std::byte{7});
}

TEST_P(WaitingTouch, that_is_refused_goes_on_where_a_page_has_come_meanwhile) {
  const Toucher toucher(page());
  expect_fault();
  ASSERT_EQ(bring_silently(*space, page(), some()), 0);
  EXPECT_FALSE(space->poison(page()));
  EXPECT_TRUE(toucher.goes_on());
  EXPECT_EQ(*page(), std::byte{7});
}

TEST_P(WaitingTouch, that_is_refused_is_a_bus_error) {
  const Toucher toucher(page());
  expect_fault();
  EXPECT_TRUE(space->poison(page()));
  EXPECT_TRUE(toucher.gets_bus_error());
}

// The buffer is freed during the touch. The touch is reported again, to the next owner of the
// addresses.
TEST_P(WaitingTouch, of_a_window_that_is_released_is_made_again) {
  const Toucher toucher(page());
  expect_fault();
  space->release_window(window, kWindow);
  expect_fault();
  space->fill_hole(page());
  EXPECT_TRUE(toucher.goes_on());
  ASSERT_EQ(*space->reserve_window(kWindow, kBytes, true), window);
}

// Behind a window, where no buffer is: the range is closed, and the thread finds it closed.
TEST_P(WaitingTouch, outside_of_every_window_is_closed_and_is_an_access_error) {
  std::byte* const outside = window + kWindow + 3 * host::kPage;
  const Toucher toucher(outside, SIGSEGV);
  Fault fault;
  if (space->next_fault(200, fault)) {
    EXPECT_EQ(fault.address, outside);
    EXPECT_TRUE(toucher.waits());
    EXPECT_TRUE(space->close_at(outside + 8));
  }
  EXPECT_TRUE(toucher.gets_access_error());
}

// Where a buffer was, between others: the same, but the addresses were open.
TEST_P(WaitingTouch, of_a_window_that_is_gone_is_an_access_error_when_its_addresses_are_closed) {
  std::byte* const next = *space->reserve_window(kWindow, kBytes, true);
  space->release_window(window, kWindow);
  const Toucher toucher(page(), SIGSEGV);
  expect_fault();
  EXPECT_TRUE(toucher.waits());
  EXPECT_TRUE(space->close_at(page() + 8));
  EXPECT_TRUE(toucher.gets_access_error());
  ASSERT_EQ(*space->reserve_window(kWindow, kBytes, true), window);
  space->release_window(next, kWindow);
}

// A write to a watched page waits. The window is replaced before the write is allowed.
TEST_P(WaitingTouch, of_a_watched_page_goes_on_when_its_window_is_gone) {
  constexpr std::uint64_t kSmall = 64 * kKiB;
  if (!space->facts().watches) {
    GTEST_SKIP() << space->facts().watch_reason;
  }
  std::byte* const at = *space->reserve_window(kSmall, kSmall, true);
  const FrameId parts = space->memory().acquire_parts({Pool::small, kSmall, 0}, 1);
  std::vector<std::byte> data(kSmall);
  ASSERT_TRUE(space->insert(parts, at, data.data(), 0b1, true).ok());
  {
    const Toucher toucher(at);
    Fault fault;
    ASSERT_TRUE(space->next_fault(kSoon, fault));
    EXPECT_TRUE(fault.watched);
    ASSERT_EQ(mmap(at, host::kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
              at);
    space->allow_writes(at, host::kPage);
    EXPECT_TRUE(toucher.goes_on());
  }
  EXPECT_EQ(*at, std::byte{7});
  (void)space->unmap(parts, at);
  space->memory().return_frame(parts);
}

INSTANTIATE_TEST_SUITE_P(By, WaitingTouch, ::testing::Values(Mechanism::uffd_move, Mechanism::copy),
                         mechanism_name);

/// Mapped windows without userfaultfd.
class TrappedTouch : public ::testing::Test {
 protected:
  static constexpr int kRounds = 6;  // One second each, if each waits for its own second.
  static constexpr auto kMuchLess = std::chrono::seconds(3);

  void SetUp() override {
    HostSpaceOptions options = small_options(64 * kMiB);
    options.userfault = UserfaultUse::off;
    auto made = HostSpace::create(options);
    ASSERT_TRUE(made.ok()) << made.message();
    space = std::move(*made);
    if (!space->maps()) {
      GTEST_SKIP() << space->facts().remap_reason;
    }
    window = *space->reserve_window(kRounds * kExtent, kExtent, true);
    began = std::chrono::steady_clock::now();
  }
  void expect_fault(const std::byte* at) {
    Fault fault;
    ASSERT_TRUE(space->next_fault(kSoon, fault));
    EXPECT_EQ(fault.address, at);
  }
  void TearDown() override {
    if (space != nullptr && space->maps()) {
      EXPECT_LT(std::chrono::steady_clock::now() - began, kMuchLess) << "no thread was woken";
    }
  }
  static constexpr std::uint64_t kExtent = 2 * kMiB;
  std::unique_ptr<HostSpace> space;
  std::byte* window = nullptr;
  std::chrono::steady_clock::time_point began;
};

TEST_F(TrappedTouch, that_is_woken_is_made_again) {
  const FrameId frame = space->memory().acquire_frame({Pool::movable, kExtent, 0});
  ASSERT_TRUE(space->memory().populate(frame, false, nullptr).ok());
  {
    const Toucher toucher(window);
    expect_fault(window);
    for (int round = 1; round < kRounds; ++round) {
      space->wake(window);
      expect_fault(window);
    }
    EXPECT_TRUE(toucher.waits());
    ASSERT_TRUE(space->restore(frame, window).ok());
    space->wake(window);
    EXPECT_TRUE(toucher.goes_on());
  }
  EXPECT_EQ(*window, std::byte{7});
  ASSERT_TRUE(space->withdraw(frame, window).ok());
}

TEST_F(TrappedTouch, of_a_hole_is_made_again) {
  const Toucher toucher(window);
  expect_fault(window);
  for (int round = 1; round < kRounds; ++round) {
    space->fill_hole(window);  // Where the range is open, the kernel fills the hole.
    expect_fault(window);
  }
  ASSERT_EQ(host::open_range(window, host::kPage), 0);
  space->fill_hole(window);
  EXPECT_TRUE(toucher.goes_on());
}

TEST_F(TrappedTouch, that_is_refused_is_a_bus_error) {
  for (int round = 0; round < kRounds; ++round) {
    std::byte* const at = window + round * kExtent;
    const Toucher toucher(at);
    expect_fault(at);
    EXPECT_TRUE(space->poison(at));
    EXPECT_TRUE(toucher.gets_bus_error());
  }
}

// Pages are created in the slots of a nursery. There are more workers than slots, so each worker
// waits for a slot that another returns.
TEST(NurseryTest, more_workers_than_slots_take_turns) {
  constexpr unsigned kWorkers = 64;
  constexpr unsigned kTurns = 12;
  constexpr std::uint64_t kHome = 256 * kKiB;
  const Userfault userfault = Userfault::open();
  if (!userfault.ok() || !userfault.facts().move) {
    GTEST_SKIP() << "no UFFDIO_MOVE";
  }
  auto nursery = Nursery::create(userfault, false);
  ASSERT_TRUE(nursery.ok()) << nursery.message();
  auto homes = host::reserve({.bytes = kWorkers * kHome});
  ASSERT_TRUE(homes.ok());
  ASSERT_EQ(userfault.register_missing(homes->data(), homes->bytes()), 0);
  std::atomic<unsigned> ready{0}, ended{0}, failed{0};
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      ++ready;
      while (ready != kWorkers) {
        std::this_thread::yield();
      }
      for (unsigned turn = 0; turn < kTurns; ++turn) {
        std::byte* const home = homes->data() + i * kHome;
        failed += (*nursery)->fill(home, kHome, false).ok() ? 0 : 1;
        (void)host::drop(home, kHome);
      }
      ++ended;
    });
  }
  EXPECT_TRUE(comes_true([&] { return ended == kWorkers; })) << ended << " of the workers ended";
  if (ended != kWorkers) {
    std::abort();  // Threads that have not ended cannot be joined.
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_EQ(failed, 0U);
}

}  // namespace
}  // namespace tiermem

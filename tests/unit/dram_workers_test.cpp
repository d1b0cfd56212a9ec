// A host memory under load: by how much the process grows, and several workers at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "dram_fixture.hpp"

namespace tiermem {
namespace {

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Property: whatever the number of moved frames and the size of the window, the process grows by at
// most the budget, and all bytes are right.
TEST(Dram, five_thousand_moves_grow_the_process_by_no_more_than_the_budget) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  constexpr std::uint64_t kExtents = 256;
  constexpr std::uint64_t kBudget = 64 * kMiB;
  for (const Mechanism mechanism :
       {Mechanism::uffd_move, Mechanism::copy, Mechanism::remap, Mechanism::in_place}) {
    std::mt19937 random(seed);
    auto made = make_space(kBudget, mechanism);
    if (!made.ok()) {
      continue;  // Reported by the tests above.
    }
    HostSpace& space = **made;
    std::byte* const window = *space.reserve_window(kExtents * 2 * kMiB, 2 * kMiB, false);
    const std::uint64_t before = resident_bytes();
    std::vector<std::pair<FrameId, std::uint64_t>> inside;  // Frame and extent.
    std::vector<bool> taken(kExtents, false);
    for (int move = 0; move < 5'000; ++move) {
      const FrameId frame = space.memory().acquire_frame({Pool::movable, 2 * kMiB, 0});
      if (!frame.valid()) {
        const std::size_t victim = random() % inside.size();
        const auto [gone, extent] = inside[victim];
        std::byte* const at = window + extent * 2 * kMiB;
        std::uint64_t first = 0;
        std::memcpy(&first, at, 8);
        ASSERT_EQ(first, extent + 1);
        ASSERT_TRUE(space.unmap(gone, at).ok());
        space.memory().return_frame(gone);
        taken[extent] = false;
        inside[victim] = inside.back();
        inside.pop_back();
        continue;
      }
      std::uint64_t extent = random() % kExtents;
      while (taken[extent]) {
        extent = (extent + 1) % kExtents;
      }
      std::byte* const at = window + extent * 2 * kMiB;
      if (space.memory().needs_populate(frame)) {
        ASSERT_TRUE(space.memory().populate(frame, false, nullptr).ok());
      }
      const std::uint64_t first = extent + 1;
      std::memcpy(space.bytes_at(frame, at), &first, 8);
      Mechanism used{};
      ASSERT_TRUE(space.map(frame, at, used).ok());
      taken[extent] = true;
      inside.emplace_back(frame, extent);
      ASSERT_LE(space.memory().usage().used(), kBudget);
    }
    const std::uint64_t after = resident_bytes();
    EXPECT_LE(after, before + kBudget + kBudget / 10);
    EXPECT_GE(after, before + kBudget / 2) << "the measure measures nothing";
    for (const auto& [frame, extent] : inside) {
      ASSERT_TRUE(space.unmap(frame, window + extent * 2 * kMiB).ok());
      space.memory().return_frame(frame);
    }
  }
}

// Several workers work on different frames at once, while the mover hands out and takes back
// frames.
TEST(Dram, workers_work_on_different_frames_at_once) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (const Mechanism mechanism :
       {Mechanism::uffd_move, Mechanism::copy, Mechanism::remap, Mechanism::in_place}) {
    auto made = make_space(64 * kMiB, mechanism);
    if (!made.ok()) {
      continue;
    }
    HostSpace& space = **made;
    for (int round = 0; round < 8; ++round) {
      struct Work {
        FrameId frame;
        std::byte* at;
        std::uint64_t bytes;
        Pool pool;
      };
      constexpr unsigned kWorkers = 4;
      std::vector<std::vector<Work>> work(kWorkers);
      std::vector<std::pair<std::byte*, std::uint64_t>> windows;
      for (unsigned i = 0; i < 24; ++i) {
        const std::uint64_t bytes = i % 3 == 0 ? 2 * kMiB : 64 * kKiB;
        const Pool pool = i % 3 == 2 ? Pool::locked : space.window_pool(bytes);
        std::byte* at = nullptr;
        if (pool != Pool::locked) {
          at = *space.reserve_window(bytes, bytes, false);
          windows.emplace_back(at, bytes);
        }
        const FrameId frame =
            space.memory().acquire_frame({pool, bytes, static_cast<std::uint32_t>(round)});
        ASSERT_TRUE(frame.valid());
        work[i % kWorkers].push_back({frame, at, bytes, pool});
      }
      std::atomic<int> wrong{0};
      std::vector<std::thread> workers;
      for (unsigned worker = 0; worker < kWorkers; ++worker) {
        workers.emplace_back([&, worker] {
          std::uint64_t what = worker * 1000;
          for (const Work& job : work[worker]) {
            ++what;
            Mechanism used{};
            wrong += space.memory().populate(job.frame, true, nullptr).ok() ? 0 : 1;
            std::byte* const landing = space.bytes_at(job.frame, job.at);
            fill(landing, job.bytes, what);
            wrong += space.map(job.frame, job.at, used).ok() ? 0 : 1;
            wrong += holds(job.at != nullptr ? job.at : landing, job.bytes, what) ? 0 : 1;
            wrong += space.unmap(job.frame, job.at).ok() ? 0 : 1;
          }
        });
      }
      for (std::thread& worker : workers) {
        worker.join();
      }
      EXPECT_EQ(wrong, 0);
      for (const auto& each : work) {
        for (const Work& job : each) {
          space.memory().return_frame(job.frame);
        }
      }
      for (const auto& [at, bytes] : windows) {
        space.release_window(at, bytes);
      }
      // One worker trims on the mover's order while the others are idle.
      space.memory().begin_trim(4 * kMiB);
      std::thread trimmer([&] { space.memory().run_trim(); });
      trimmer.join();
      space.memory().finish_trim();
      ASSERT_TRUE(space.memory().test_consistent());
    }
  }
}

}  // namespace
}  // namespace tiermem

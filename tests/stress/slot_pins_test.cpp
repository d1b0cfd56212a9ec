// Views of a few extents that are viewed all the time, so that their slots are their pins, while
// another thread evicts these extents. Property: no view shows bytes that are older
// than the last write, and no write is lost. Method: each thread has a word of its own in each
// extent, and knows what it wrote there. A quarter of the views are released by another thread.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kExtent = 65536;
constexpr unsigned kHot = 12, kThreads = 3;
constexpr auto kTime = std::chrono::seconds(2);

// Views that their owners have left to others.
class Left {
 public:
  void put(const ViewRecord& view) {
    const std::lock_guard lock(mutex_);
    views_.push_back(view);
  }
  bool take(ViewRecord& view) {
    const std::lock_guard lock(mutex_);
    if (views_.empty()) {
      return false;
    }
    view = views_.back();
    views_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<ViewRecord> views_;
};

struct Hot {
  Context& context;
  Handle buffer;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> evicted{0}, views{0};
  Left left;

  Access extent(std::uint64_t i, std::uint32_t mode) const {
    return {buffer, i * kExtent, kExtent, mode, {}, 0};
  }
  void view(unsigned self) {
    std::mt19937_64 random(self);
    std::array<std::uint64_t, kHot> written{};
    std::uint64_t n = 0;
    for (; !stop.load(std::memory_order_relaxed); ++n) {
      const std::uint64_t i = random() % kHot;
      const bool writes = random() % 2 == 0;
      const Access access = extent(i, writes ? kWrite : kRead);
      ViewRecord made;
      const Status status = context.acquire({&access, 1}, Timeout::forever(), {&made, 1});
      ASSERT_TRUE(status.ok()) << status.message();
      // The last bytes of the extent: they move last.
      const std::atomic_ref<std::uint64_t> word(reinterpret_cast<std::uint64_t*>(
          static_cast<std::byte*>(made.data) + kExtent)[-1 - int(self)]);
      ASSERT_EQ(word.load(std::memory_order_relaxed), written[i]) << "extent " << i;
      if (writes) {
        word.store(++written[i], std::memory_order_relaxed);
      }
      if (random() % 4 == 0) {
        left.put(made);
      } else {
        ASSERT_TRUE(context.release({&made, 1}).ok());
      }
      while (random() % 4 == 0 && left.take(made)) {
        ASSERT_TRUE(context.release({&made, 1}).ok());
      }
    }
    views += n;
  }
  void disturb() {
    std::mt19937_64 random(99);
    while (!stop.load(std::memory_order_relaxed)) {
      const Access one = extent(random() % kHot, kRead);
      if (random() % 4 == 0) {
        const Status status = context.advise({&one, 1}, Advice::cold);
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      const Status status = context.evict({&one, 1}, Timeout::milliseconds(2));
      EXPECT_TRUE(status.ok() || status.code() == Code::busy || status.code() == Code::timed_out)
          << status.message();
      evicted += status.ok() ? 1 : 0;
    }
  }
};

TEST(SlotPinsStress, hot_extents_are_evicted_then_no_view_is_old_and_no_write_is_lost) {
  Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":64M");
  ASSERT_NE(context, nullptr);
  auto buffer = context->alloc(kHot * kExtent, {.extent_bytes = kExtent});
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  Hot hot{*context, buffer->range().buffer};
  std::vector<std::thread> threads;
  for (unsigned self = 0; self < kThreads; ++self) {
    threads.emplace_back([&hot, self] { hot.view(self); });
  }
  threads.emplace_back([&hot] { hot.disturb(); });
  std::this_thread::sleep_for(kTime);
  hot.stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (ViewRecord view; hot.left.take(view);) {
    EXPECT_TRUE(context->release({&view, 1}).ok());
  }
  const Access all = buffer->range();
  const Status evicted = context->evict({&all, 1}, Timeout::forever());
  EXPECT_TRUE(evicted.ok()) << "a pin is left: " << evicted.message();
  EXPECT_GT(hot.evicted, 10u);
  std::printf("%llu views, %llu evictions\n", static_cast<unsigned long long>(hot.views),
              static_cast<unsigned long long>(hot.evicted));
}

}  // namespace
}  // namespace tiermem::test

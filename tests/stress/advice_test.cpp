// Advice for a buffer that another thread frees at the same time. Property: the advice is accepted
// or refused as stale, and never affects the next buffer in the same place. Method: owners write,
// check and free one buffer after another. The advisers get its handle just before the free, so
// advice, also dont_need, must never reach bytes that are checked.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kRounds = 600;

class Advisers {
 public:
  Advisers(Context& context, unsigned threads) {
    for (unsigned t = 0; t < threads; ++t) {
      threads_.emplace_back([this, &context, t] { advise(context, t); });
    }
  }
  ~Advisers() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  void tell(Handle handle) { dying_ = handle; }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t stale() const { return stale_; }

 private:
  void advise(Context& context, std::uint64_t i) {
    constexpr std::array kAll = {Advice::dont_need, Advice::keep,      Advice::cold,
                                 Advice::next_use,  Advice::will_need, Advice::frozen};
    for (; !stop_; ++i) {
      Access range;
      range.buffer = dying_;
      const Advice advice = kAll[i % kAll.size()];
      const Status status = context.advise({&range, 1}, advice, 1);
      EXPECT_TRUE(status.ok() || status.code() == Code::stale_handle) << status.message();
      (status.ok() ? taken_ : stale_) += 1;
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<Handle> dying_{0};
  std::atomic<std::uint64_t> taken_{0}, stale_{0};
  std::vector<std::thread> threads_;
};

TEST(Advice, for_a_buffer_that_is_freed_meanwhile_reaches_no_other) {
  Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":256M");
  ASSERT_NE(context, nullptr);
  Advisers advisers(*context, 2);
  std::vector<std::thread> owners;
  for (std::uint64_t t = 0; t < 2; ++t) {
    owners.emplace_back([&, t] {
      constexpr std::array kSizes = {std::uint64_t{4096}, std::uint64_t{64} << 10, 2 * kMiB,
                                     6 * kMiB};
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::uint64_t seed = 1 + t * kRounds + round;
        auto made = context->alloc(kSizes[round / 8 % kSizes.size()]);
        ASSERT_TRUE(made.ok()) << made.message();
        Buffer buffer = std::move(*made);
        ASSERT_EQ(write_pattern(buffer, seed).code(), Code::ok);
        if (round % 16 == 0) {
          (void)buffer.evict();
        }
        ASSERT_EQ(wrong_words(buffer, seed), 0u) << "thread " << t << ", round " << round;
        const Handle handle = buffer.detach();
        advisers.tell(handle);
        if (round % 2 == 0) {
          std::this_thread::yield();  // Lets some advice arrive before the free.
        }
        ASSERT_TRUE(context->free(handle).ok());
      }
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  EXPECT_GT(advisers.taken(), 0u);
  EXPECT_GT(advisers.stale(), 0u);
  // After advice to keep, freeze or await, nothing stays: all memory can be used by another buffer.
  Buffer all = make_buffer(*context, 16 * kMiB, "all");
  EXPECT_TRUE(all.acquire(kDiscard, 0, 0, Timeout::seconds(20)).ok());
}

}  // namespace
}  // namespace tiermem::test

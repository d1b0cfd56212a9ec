// Freed buffers with memory that serves the next buffer of the same shape. No bytes of the previous
// life may be visible, and no memory is kept that another buffer needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void fill_whole(Buffer& buffer, std::uint64_t seed) {
  auto view = buffer.acquire(kDiscard);
  ASSERT_TRUE(view.ok()) << view.message();
  fill(view->as<std::uint64_t>(), seed);
}

class SpareBuffers : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SpareBuffers, reads_as_zeros_in_its_next_life_and_does_not_visit_the_mover) {
  auto context = make_context("dram=128M; nvme=off");
  const std::uint64_t bytes = GetParam();
  {
    auto first = context->alloc(bytes);
    fill_whole(*first, 1);
  }
  const std::uint64_t misses = context->stats().misses;
  auto second = context->alloc(bytes);
  ASSERT_TRUE(second.ok()) << second.message();
  auto view = second->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_TRUE(all_zero(view->bytes()));
  EXPECT_EQ(context->stats().misses, misses);
  EXPECT_EQ(context->stats().buffers, 1u);
}

TEST_P(SpareBuffers, is_zero_around_what_the_next_life_writes) {
  auto context = make_context("dram=128M; nvme=off");
  const std::uint64_t bytes = GetParam();
  {
    auto first = context->alloc(bytes);
    fill_whole(*first, 2);
  }
  auto second = context->alloc(bytes);
  const std::uint64_t value = 42;
  ASSERT_TRUE(second->write(bytes / 2, &value, sizeof(value)).ok());
  auto view = second->acquire(kRead);
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(all_zero(view->bytes().first(bytes / 2)));
  EXPECT_TRUE(all_zero(view->bytes().subspan(bytes / 2 + 8)));
  EXPECT_EQ(std::memcmp(view->data() + bytes / 2, &value, 8), 0);
}

TEST_P(SpareBuffers, keeps_what_is_written_over_a_discard) {
  auto context = make_context("dram=128M; nvme=off");
  for (std::uint64_t life = 1; life < 20; ++life) {
    auto buffer = context->alloc(GetParam());
    fill_whole(*buffer, life);
    auto view = buffer->acquire(kRead);
    ASSERT_TRUE(view.ok());
    ASSERT_EQ(wrong(view->as<std::uint64_t>(), life), 0u) << "life " << life;
  }
}

TEST_P(SpareBuffers, the_handle_of_the_old_life_stays_stale) {
  auto context = make_context("dram=128M; nvme=off");
  auto first = context->alloc(GetParam());
  fill_whole(*first, 3);
  const Handle old = first->handle();
  first->reset();
  auto second = context->alloc(GetParam());
  fill_whole(*second, 4);
  std::uint64_t word = 0;
  EXPECT_EQ(context->read(old, 0, &word, 8).code(), Code::stale_handle);
  EXPECT_EQ(context->write(old, 0, &word, 8).code(), Code::stale_handle);
  EXPECT_EQ(context->free(old).code(), Code::stale_handle);
  EXPECT_EQ(context->info(old).code(), Code::stale_handle);
  auto view = second->acquire(kRead);
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 4), 0u);
}

TEST_P(SpareBuffers, bytes_under_a_view_that_outlives_the_buffer_are_nobody_elses) {
  auto context = make_context("dram=128M; nvme=off");
  auto first = context->alloc(GetParam());
  fill_whole(*first, 5);
  auto view = first->acquire(kRead);
  first->reset();
  auto second = context->alloc(GetParam());
  fill_whole(*second, 6);
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 5), 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SpareBuffers, ::testing::Values(4096, 65536, 1 << 20, 12 << 20),
                         [](const auto& size) { return std::to_string(size.param / 1024) + "K"; });

TEST(SpareBuffersOf, another_domain_are_not_taken) {
  auto context = make_context("dram=64M; nvme=off");
  {
    auto secret = context->alloc(kMiB, {.flags = kIsolated});
    fill_whole(*secret, 7);
  }
  auto next = context->alloc(kMiB);
  auto view = next->acquire(kDiscard);
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(all_zero(view->bytes()));
}

TEST(SpareBuffersOf, advice_is_for_one_life) {
  Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":128M");
  for (int i = 0; i < 8; ++i) {
    auto kept = context->alloc(2 * kMiB);
    fill_whole(*kept, 8);
    ASSERT_TRUE(kept->advise(Advice::keep, 1).ok());
  }
  // If the advice also held for the next lives, nothing could take their place.
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 16; ++i) {
    buffers.push_back(std::move(context->alloc(2 * kMiB)).value());
    fill_whole(buffers.back(), 100 + i);
  }
  for (std::uint64_t i = 0; i < 16; ++i) {
    auto view = buffers[i].acquire(kRead);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_EQ(wrong(view->as<std::uint64_t>(), 100 + i), 0u);
  }
}

TEST(SpareBuffersOf, all_memory_are_given_up_before_anybody_is_refused) {
  auto context = make_context("dram=32M; nvme=off");
  for (int round = 0; round < 20; ++round) {
    {
      std::vector<Buffer> small;
      for (int i = 0; i < 16; ++i) {
        small.push_back(std::move(context->alloc(256 << 10)).value());
        fill_whole(small.back(), 9);
      }
    }
    auto all = context->alloc(32 * kMiB);
    auto view = all->acquire(kDiscard, 0, 0, Timeout::seconds(20));
    ASSERT_TRUE(view.ok()) << "round " << round << ": " << view.message();
  }
}

TEST(SpareBuffersOf, a_failed_list_show_nothing_of_their_old_life) {
  auto context = make_context("dram=16M; nvme=off");
  auto rest = context->alloc(12 * kMiB);
  {
    auto first = context->alloc(512 << 10);
    fill_whole(*first, 10);
  }
  auto taken = rest->acquire(kDiscard);
  ASSERT_TRUE(taken.ok()) << taken.message();
  auto next = context->alloc(512 << 10);
  auto other = context->alloc(4 * kMiB);
  const Access list[] = {next->range(0, 0, kDiscard), other->range(0, 0, kDiscard)};
  ViewRecord views[2];
  EXPECT_EQ(context->acquire(list, Timeout::milliseconds(50), views).code(), Code::no_capacity);
  auto view = next->acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_TRUE(all_zero(view->bytes()));
}

TEST(SpareBuffersOf, bytes_that_were_written_down_do_not_come_back) {
  Directory directory;
  auto context = make_context("dram=16M; nvme=" + directory.path() + ":128M");
  for (int round = 0; round < 10; ++round) {
    {
      auto buffer = context->alloc(2 * kMiB);
      fill_whole(*buffer, 11);
      ASSERT_TRUE(buffer->evict().ok());
      auto view = buffer->acquire(kRead);
      ASSERT_EQ(wrong(view->as<std::uint64_t>(), 11), 0u);
    }
    auto next = context->alloc(2 * kMiB);
    ASSERT_TRUE(next->evict().ok());
    auto view = next->acquire(kRead);
    ASSERT_TRUE(all_zero(view->bytes()));
  }
}

// Each thread has its own buffers, and some read with stale handles, under pressure that takes
// spares away.
TEST(SpareBuffersOf, four_threads_never_see_each_others_bytes) {
  Directory directory;
  auto context = make_context("dram=24M; nvme=" + directory.path() + ":512M");
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::array<std::atomic<Handle>, 4> last{};
  std::atomic<std::uint64_t> errors{0};
  const auto work = [&](unsigned thread) {
    std::mt19937_64 random(seed + thread);
    std::vector<std::pair<Buffer, std::uint64_t>> held;
    for (std::uint64_t i = 0; i < (kSanitized ? 300 : 1500); ++i) {
      const std::uint64_t bytes = std::uint64_t{64 << 10} << random() % 6;
      auto buffer = context->alloc(bytes);
      if (!buffer.ok()) {
        ++errors;
        continue;
      }
      const std::uint64_t pattern = thread << 20 | i;
      if (random() % 2 == 0) {
        auto view = buffer->acquire(kRead);
        errors += !view.ok() || !all_zero(view->bytes()) ? 1 : 0;
      }
      {
        auto view = buffer->acquire(kDiscard);
        if (!view.ok()) {
          ++errors;
          continue;
        }
        fill(view->as<std::uint64_t>(), pattern);
      }
      last[thread].store(buffer->handle());
      std::byte peek[64];
      (void)context->read(last[random() % 4].load(), 0, peek,
                          sizeof(peek));  // Often stale.
      held.emplace_back(std::move(*buffer), pattern);
      if (held.size() > 6) {
        const std::size_t gone = random() % held.size();
        {
          auto view = held[gone].first.acquire(kRead);
          errors += !view.ok() || wrong(view->as<std::uint64_t>(), held[gone].second) != 0 ? 1 : 0;
        }
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(gone));
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back(work, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(errors.load(), 0u);
}

}  // namespace
}  // namespace tiermem::test

// All calls at once. Property: whatever the order of calls by several threads on one context, with
// memory that is a fraction of the data, each byte reads as last written, each view without a time
// limit is granted, and the budget holds. Method: each worker keeps a model of its own buffers (a
// seed per cell), and compares what it reads with it. All share read-only buffers and one buffer of
// counters. Another thread changes budgets, evicts, advises and misuses calls. The seed is printed.
// TIERMEM_STRESS_SEED sets it, and TIERMEM_STRESS_SECONDS sets the time of each case.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "stress/mix_worker.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr unsigned kWorkers = 4;
// More than all bytes that can be pinned at once.
constexpr std::uint64_t kSmallestBudget = 20 * kMiB;
constexpr std::uint64_t kLargestBudget = 32 * kMiB;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = getenv(variable);
  return text != nullptr && *text != '\0' ? strtoull(text, nullptr, 0) : otherwise;
}

using Clock = std::chrono::steady_clock;

/// Changes budgets, evicts, and misuses calls from another thread.
void disturb(World& world, std::uint64_t seed) {
  Random random(seed);
  Context& context = *world.context;
  const auto one_of = [&](const Status& status, std::initializer_list<Code> allowed,
                          const char* what) {
    if (!status.ok() && std::find(allowed.begin(), allowed.end(), status.code()) == allowed.end()) {
      world.failed(what, status);
    }
  };
  while (!world.stop.load(std::memory_order_relaxed)) {
    const Access shared = world.shared[random() % world.shared.size()].range();
    switch (random() % 8) {
      case 0: {
        const std::uint64_t bytes = kSmallestBudget + random() % (kLargestBudget - kSmallestBudget);
        one_of(context.set_budget({Kind::dram, 0}, bytes, Timeout::milliseconds(20)),
               {Code::no_capacity, Code::timed_out}, "set_budget");
        break;
      }
      case 1:
        one_of(context.evict({&shared, 1}, Timeout::milliseconds(10)),
               {Code::busy, Code::timed_out}, "evict");
        break;
      case 2:
        one_of(context.advise({&shared, 1}, random() % 2 == 0 ? Advice::cold : Advice::keep,
                              random() % 2),
               {}, "advise");
        break;
      case 3: {
        const Access counters = world.counters.range();
        one_of(context.evict({&counters, 1}, Timeout::milliseconds(5)),
               {Code::busy, Code::timed_out}, "evict");
        break;
      }
      case 4: {
        Op op;
        one_of(context.prefetch({&shared, 1}, 0, &op), {}, "prefetch");
        (void)op.cancel();
        one_of(op.wait(), {Code::cancelled}, "a prefetch");
        break;
      }
      case 5: {  // Does not wait for room, or at most a millisecond.
        const Access all = world.counters.range();
        ViewRecord view;
        const Status status = context.acquire(
            {&all, 1}, Timeout::milliseconds(static_cast<std::int64_t>(random() % 2)), {&view, 1});
        one_of(status, {Code::busy, Code::timed_out, Code::no_capacity}, "acquire");
        if (status.ok()) {
          one_of(context.release({&view, 1}), {}, "release");
        }
        break;
      }
      case 6: {
        ViewRecord forged;
        forged.token[0] = random() % 4;
        forged.token[1] = (random() << 40) | 1;
        if (context.free(random()).code() != Code::stale_handle ||
            context.release({&forged, 1}).code() != Code::invalid_argument ||
            context.op_cancel(random()).code() != Code::invalid_argument) {
          world.failed("misuse", Code::internal);
        }
        break;
      }
      default: {
        const Stats stats = context.stats();
        if (stats.dram_used > kLargestBudget || stats.checksum_errors != 0 ||
            stats.io_errors != 0 || stats.poisoned_touches != 0) {
          ADD_FAILURE() << "used " << stats.dram_used << " checksums " << stats.checksum_errors
                        << " io " << stats.io_errors << " poisoned " << stats.poisoned_touches;
          world.stop = true;
        }
      }
    }
  }
}

struct Case {
  const char* name;
  const char* options;
  bool two_directories = false;
  bool files = false;  ///< The shared buffers are adopted files.
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class Mix : public ::testing::TestWithParam<Case> {
 protected:
  Directory one_, two_;
};

TEST_P(Mix, every_byte_is_as_it_was_last_written) {
  const std::uint64_t seed = number_from("TIERMEM_STRESS_SEED", std::random_device()());
  const std::uint64_t seconds = number_from("TIERMEM_STRESS_SECONDS", 3);
  printf("TIERMEM_STRESS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  fflush(stdout);
  World world;
  auto context = Context::create(
      "dram=" + std::to_string(kLargestBudget) + "; nvme=" + one_.path() + ":512M" +
      (GetParam().two_directories ? "," + two_.path() + ":512M" : "") + GetParam().options);
  if (context.code() == Code::unsupported || context.code() == Code::unavailable) {
    GTEST_SKIP() << context.message();
  }
  ASSERT_TRUE(context.ok()) << context.message();
  world.context = std::move(*context);
  for (std::uint64_t i = 0; i < 4; ++i) {
    if (GetParam().files) {
      const std::string path = two_.path() + "/file" + std::to_string(i);
      std::vector<std::uint64_t> words(kShared / 8);
      fill(words, 1 + i);
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(words.data()), kShared);
      auto file = world.context->adopt_file(path.c_str());
      ASSERT_TRUE(file.ok()) << file.message();
      world.shared.push_back(std::move(*file));
    } else {
      auto buffer = world.context->alloc(kShared);
      ASSERT_TRUE(buffer.ok()) << buffer.message();
      ASSERT_TRUE(write_pattern(*buffer, 1 + i).ok());
      world.shared.push_back(std::move(*buffer));
    }
  }
  BufferOptions small;
  small.extent_bytes = 4096;
  auto counters = world.context->alloc(64 * kCounters * 8, small);
  ASSERT_TRUE(counters.ok()) << counters.message();
  world.counters = std::move(*counters);

  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kWorkers; ++t) {
    threads.emplace_back([&world, seed, t] { Worker(world, seed * 1000 + t).run(); });
  }
  threads.emplace_back([&world, seed] { disturb(world, seed * 1000 + 999); });
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < end && !world.stop.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  world.stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }

  for (std::uint64_t i = 0; i < world.shared.size(); ++i) {
    EXPECT_EQ(wrong_words(world.shared[i], 1 + i), 0u) << "shared " << i;
  }
  std::uint64_t sum = 0;
  auto view = world.counters.acquire(kRead);
  ASSERT_TRUE(view.ok()) << view.message();
  for (const std::uint64_t word : view->as<std::uint64_t>()) {
    sum += word;
  }
  view->release();
  EXPECT_EQ(sum, world.counted.load());
  EXPECT_TRUE(
      eventually([&] { return world.context->stats().buffers == world.shared.size() + 1; }));
  const Stats stats = world.context->stats();
  EXPECT_EQ(stats.dram_pinned, 0u);
  EXPECT_EQ(stats.degraded_devices, 0u);
  EXPECT_GT(stats.demoted, 0u) << "memory was enough: nothing was tried";
  printf("promoted %llu MiB, demoted %llu MiB, steps %llu\n",
         static_cast<unsigned long long>(stats.promoted / kMiB),
         static_cast<unsigned long long>(stats.demoted / kMiB),
         static_cast<unsigned long long>(stats.steps));
  world.shared.clear();
  world.counters.reset();
  const Status closed = world.context->close();
  EXPECT_TRUE(closed.ok()) << closed.message();
}

INSTANTIATE_TEST_SUITE_P(
    with, Mix,
    ::testing::Values(Case{"the_defaults", ""},  //
                      Case{"two_directories", "; piece=256K; depth=4", true, false},
                      Case{"adopted_files", "", false, true},
                      Case{"checksums_off_and_in_place", "; checksum=off; mechanism=in_place"},
                      Case{"moved_pages", "; mechanism=uffd_move; ahead=0"},
                      Case{"copied_pages", "; mechanism=copy; ahead=0"},
                      Case{"remapped_frames_and_threads",
                           "; mechanism=remap; io_engine=threads; workers=3; ahead=20", true,
                           true}),
    [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace tiermem::test

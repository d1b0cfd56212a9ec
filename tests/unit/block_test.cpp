// The block tier over a scripted port: allocation, striping, budgets, growth, and transfers without
// faults. Faults are in block_faults_test.cpp.

#include "tier/block.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "block_fixture.hpp"
#include "scripted_io_port.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

TEST(BlockTier, a_size_that_is_no_slot_is_refused_with_what_is_accepted) {
  ScriptedIoPort port(1, 64 * kMiB);
  BlockTier tier(port, {});
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, 512 * std::uint64_t{1}, 3 * kMiB, 128 * kMiB}) {
    const Result<SlotId> slot = tier.allocate(bytes, 0);
    EXPECT_EQ(slot.code(), Code::invalid_argument);
    EXPECT_NE(std::string(slot.message()).find("4096"), std::string::npos);
  }
}

TEST(BlockTier, the_cap_is_an_error_that_names_tier_budget_use_and_setting) {
  ScriptedIoPort port(2, 64 * kMiB);
  BlockOptions options;
  options.budget = 10 * kMiB;
  BlockTier tier(port, options);
  EXPECT_EQ(allocate_all(tier, 4 * kMiB).size(), 2U);
  EXPECT_LE(tier.usage().physical, tier.usage().budget);
  const Result<SlotId> more = tier.allocate(4 * kMiB, 0);
  ASSERT_EQ(more.code(), Code::no_capacity);
  const ErrorInfo* info = more.status().info();
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->tier, (Place{Kind::block, 0}));
  EXPECT_EQ(info->budget, 10 * kMiB);
  EXPECT_EQ(info->used, 8 * kMiB);
  EXPECT_EQ(info->needed, 4 * kMiB);
  EXPECT_STREQ(info->setting, "nvme=DIR:SIZE");
  EXPECT_NE(std::string(info->text).find("10.0 MiB"), std::string::npos) << info->text;
}

TEST(BlockTier, a_lower_budget_stops_growth_and_a_higher_one_allows_it_again) {
  ScriptedIoPort port(1, 256 * kMiB);
  BlockTier tier(port, {});
  EXPECT_EQ(tier.usage().budget, 256 * kMiB) << "never above the devices' limits";
  ASSERT_TRUE(tier.grow(4 * kKiB).ok());
  tier.set_budget(64 * kMiB);
  EXPECT_EQ(allocate_all(tier, 2 * kMiB).size(), 32U);
  EXPECT_EQ(tier.allocate(2 * kMiB, 0).code(), Code::no_capacity);
  EXPECT_EQ(tier.grow(2 * kMiB).code(), Code::no_capacity);
  EXPECT_EQ(tier.usage().physical, 64 * kMiB);
  tier.set_budget(128 * kMiB);
  EXPECT_EQ(allocate_all(tier, 2 * kMiB).size(), 32U);
}

TEST(BlockTier, slots_are_striped_over_idle_devices_evenly) {
  ScriptedIoPort port(3, 256 * kMiB);
  BlockTier tier(port, {});
  ASSERT_TRUE(tier.grow(2 * kMiB).ok());
  std::map<std::uint16_t, int> count;
  for (int i = 0; i < 90; ++i) {
    ++count[tier.device_of(*tier.allocate(2 * kMiB, 0))];
  }
  EXPECT_EQ(count, (std::map<std::uint16_t, int>{{0, 30}, {1, 30}, {2, 30}}));
}

TEST(BlockTier, a_device_that_drains_slower_gets_fewer_slots) {
  ScriptedIoPort port(2, 64 * kMiB);
  // Every request of device 1 needs four tries.
  std::map<std::uint64_t, int> tries;
  port.script = [&](std::size_t, const IoRequest& request) {
    return ScriptedIoPort::Answer{request.device == 1 && ++tries[request.offset] % 4 != 0 ? EAGAIN
                                                                                          : 0};
  };
  BlockTier tier(port, {});
  ASSERT_TRUE(tier.grow(2 * kMiB).ok());
  const Bytes data = pattern(2 * kMiB, 1);
  std::map<std::uint16_t, int> count;
  std::size_t under_way = 0;
  for (int i = 0; i < 60;) {
    for (; under_way < 4 && i < 60; ++i, ++under_way) {
      const Result<SlotId> slot = tier.allocate(kMiB, 0);
      ASSERT_TRUE(slot.ok()) << slot.message();
      ++count[tier.device_of(*slot)];
      tier.submit({static_cast<std::uint64_t>(i), *slot, true, data.get(), kMiB});
    }
    SlotCompletion done[8];
    under_way -= tier.reap(done);
  }
  EXPECT_GT(count[0], 2 * count[1]);
  EXPECT_GT(count[1], 0);
}

TEST(BlockTier, avoided_degraded_and_read_only_devices_get_no_slots) {
  ScriptedIoPort port(4, 64 * kMiB);
  port.device[3].facts.writable = false;
  BlockTier tier(port, {});
  EXPECT_EQ(tier.allocate(2 * kMiB, 1).code(), Code::busy);
  ASSERT_TRUE(tier.grow(2 * kMiB).ok());
  EXPECT_EQ(port.device[0].facts.size, 0U) << "grown for an allocation that avoids it";
  tier.degrade(1, "wrote EIO");
  EXPECT_EQ(tier.degraded(), 1U);
  EXPECT_STREQ(tier.counters(1).reason, "wrote EIO");
  for (int i = 0; i < 32; ++i) {
    const Result<SlotId> slot = tier.allocate(2 * kMiB, 1);
    ASSERT_TRUE(slot.ok()) << slot.message();
    EXPECT_EQ(tier.device_of(*slot), 2);
  }
  EXPECT_EQ(tier.allocate(2 * kMiB, 1).code(), Code::no_capacity);
  EXPECT_EQ(tier.allocate(2 * kMiB, 0).code(), Code::busy) << "device 0 can still grow";
  tier.trust_again();
  EXPECT_EQ(tier.degraded(), 0U);
  EXPECT_NE(tier.allocate(2 * kMiB, 1).code(), Code::no_capacity) << "device 1 can, too";
}

TEST(BlockTier, a_refused_growth_moves_on_to_the_next_device_and_is_named_in_the_end) {
  ScriptedIoPort port(2, 64 * kMiB);
  int asked = 0;
  port.device[0].on_grow = [&](std::uint64_t) {
    ++asked;
    return fail_native(Code::no_capacity, ENOSPC, "scripted0 has no space left");
  };
  BlockTier tier(port, {});
  const std::vector<SlotId> slots = allocate_all(tier, 2 * kMiB);
  EXPECT_EQ(slots.size(), 32U);
  for (const SlotId slot : slots) {
    EXPECT_EQ(tier.device_of(slot), 1);
  }
  const Result<SlotId> more = tier.allocate(2 * kMiB, 0);
  ASSERT_EQ(more.code(), Code::no_capacity);
  EXPECT_NE(std::string(more.message()).find("scripted0 has no space left"), std::string::npos)
      << more.message();
  const int before = asked;
  unsigned refused = 0;
  while (tier.allocate(2 * kMiB, 0).code() == Code::no_capacity) {
    ASSERT_LE(++refused, BlockTier::kGrowthPause) << "growing is never tried again";
  }
  EXPECT_EQ(asked, before);
  port.device[0].on_grow = nullptr;
  ASSERT_TRUE(tier.grow(2 * kMiB).ok());
  EXPECT_TRUE(tier.allocate(2 * kMiB, 0).ok());
}

TEST(BlockTier, a_growth_that_fails_everywhere_returns_the_first_refusal) {
  ScriptedIoPort port(2, 64 * kMiB);
  for (int d = 0; d < 2; ++d) {
    port.device[d].on_grow = [d](std::uint64_t) {
      return fail_native(Code::io_error, EIO, "device {} broke", d);
    };
  }
  BlockTier tier(port, {});
  const Status status = tier.grow(2 * kMiB);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_STREQ(status.message(), "device 0 broke");
  EXPECT_EQ(tier.usage().physical, 0U);
}

TEST(BlockTier, workers_that_grow_while_the_mover_allocates_never_pass_the_budget) {
  ScriptedIoPort port(3, 80 * kMiB);
  BlockOptions options;
  options.budget = 180 * kMiB + 12 * kKiB;
  BlockTier tier(port, options);
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&, i] {
      while (!stop) {
        (void)tier.grow(i == 0 ? 2 * kMiB : 4 * kKiB);
      }
    });
  }
  std::mt19937 random(7);
  std::vector<SlotId> live;
  for (int allocated = 0; allocated < 1000;) {
    const Result<SlotId> slot = tier.allocate(random() % 4 != 0 ? 2 * kMiB : 4 * kKiB, 0);
    if (slot.ok()) {
      live.push_back(*slot);
      ++allocated;
    } else if (slot.code() == Code::no_capacity) {
      ASSERT_FALSE(live.empty());
      std::swap(live[random() % live.size()], live.back());
      tier.free(live.back());
      live.pop_back();
    }
    const SlotUsage usage = tier.usage();
    ASSERT_LE(usage.physical, usage.budget);
    ASSERT_LE(usage.in_use, usage.physical);
  }
  stop = true;
  for (std::thread& worker : workers) {
    worker.join();
  }
  const Status status = tier.check_invariants();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(live.size(), 100U);
}

// A worker waits for another growth of the same device. No other event follows that could wake this
// worker.
TEST(BlockTier, a_hand_that_finds_a_device_growing_goes_on_when_it_has_grown) {
  ScriptedIoPort port(1, 80 * kMiB);
  std::promise<void> begun, may_end;
  std::atomic<int> calls{0};
  port.device[0].on_grow = [&](std::uint64_t) {
    if (calls++ == 0) {
      begun.set_value();
      may_end.get_future().wait();
    }
    return Status();
  };
  BlockTier tier(port, {});
  std::thread first([&] { EXPECT_TRUE(tier.grow(2 * kMiB).ok()); });
  begun.get_future().wait();
  std::promise<void> ended;
  std::thread second([&] {
    EXPECT_TRUE(tier.grow(2 * kMiB).ok());
    ended.set_value();
  });
  const std::future<void> end = ended.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_end.set_value();
  const bool went_on = end.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(went_on) << "the worker was not woken";
  first.join();
  if (!went_on) {
    std::abort();  // A thread that was not woken cannot be joined.
  }
  second.join();
  EXPECT_EQ(calls, 1) << "the first growth was enough";
}

TEST(BlockTier, random_transfers_complete_once_with_their_bytes_in_any_order) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ScriptedIoPort port(2, 64 * kMiB, seed % 2 == 0 ? 4096 : 512);
    port.shuffle = &random;
    port.capacity = 1 + random() % 20;
    BlockOptions options;
    options.depth = 1 + random() % 8;
    options.piece_bytes = (4 * kKiB) << (random() % 6);
    BlockTier tier(port, options);
    ASSERT_TRUE(tier.grow(4 * kKiB).ok());

    struct Job {
      SlotId slot;
      std::uint64_t length = 0;
      Bytes data, back;
      int writes = 0, reads = 0;
    };
    std::vector<Job> jobs(60);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      const std::uint64_t bytes = (4 * kKiB) << (random() % 8);
      const Result<SlotId> slot = tier.allocate(bytes, 0);
      if (slot.code() == Code::busy) {
        ASSERT_TRUE(tier.grow(bytes).ok());
      }
      job.slot = slot.ok() ? *slot : *tier.allocate(bytes, 0);
      job.length = 1 + random() % bytes;
      job.data = pattern(bytes, i + 1);
      job.back = pattern(bytes, 0);
      tier.submit({2 * i, job.slot, true, job.data.get(), job.length});
    }
    std::size_t left = 2 * jobs.size();
    for (int round = 0; left > 0; ++round) {
      ASSERT_LT(round, 100000);
      port.per_reap = 1 + random() % 7;
      SlotCompletion done[5];
      const std::size_t n = tier.reap({done, 1 + random() % 5});
      for (std::size_t i = 0; i < n; ++i, --left) {
        ASSERT_EQ(done[i].code, Code::ok);
        Job& job = jobs[done[i].cookie / 2];
        if (done[i].cookie % 2 == 0) {
          ++job.writes;
          tier.submit({done[i].cookie + 1, job.slot, false, job.back.get(), job.length});
        } else {
          ++job.reads;
        }
      }
      const Status status = tier.check_invariants();
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (const Job& job : jobs) {
      EXPECT_EQ(job.writes, 1);
      EXPECT_EQ(job.reads, 1);
      EXPECT_EQ(std::memcmp(job.data.get(), job.back.get(), job.length), 0);
    }
    EXPECT_EQ(port.in_flight, 0U);
    EXPECT_LE(port.most_in_flight, 2 * options.depth);
  }
}

TEST(BlockTier, pieces_keep_to_their_size_and_the_device_to_its_depth) {
  ScriptedIoPort port(1, 64 * kMiB);
  BlockOptions options;
  options.depth = 3;
  options.piece_bytes = 256 * kKiB;
  BlockTier tier(port, options);
  ASSERT_TRUE(tier.grow(4 * kMiB).ok());
  const SlotId slot = *tier.allocate(4 * kMiB, 0);
  const Bytes data = pattern(4 * kMiB, 3);
  tier.submit({9, slot, true, data.get(), 4 * kMiB});
  EXPECT_EQ(reap_one(tier).code, Code::ok);
  EXPECT_EQ(port.most_in_flight, 3U);
  EXPECT_EQ(port.log.size(), 16U);
  for (const IoRequest& request : port.log) {
    EXPECT_EQ(request.length, 256 * kKiB);
  }
  const DeviceCounters counters = tier.counters(0);
  EXPECT_EQ(counters.requests, 16U);
  EXPECT_EQ(counters.bytes_written, 4 * kMiB);
  EXPECT_EQ(counters.retries + counters.errors, 0U);
}

TEST(BlockTier, lengths_are_rounded_to_blocks_and_misaligned_memory_is_buffered) {
  ScriptedIoPort port(1, 64 * kMiB, 4096);
  BlockTier tier(port, {});
  ASSERT_TRUE(tier.grow(64 * kKiB).ok());
  const SlotId slot = *tier.allocate(64 * kKiB, 0);
  const Bytes data = pattern(128 * kKiB, 3);
  tier.submit({1, slot, true, data.get(), 5000});
  EXPECT_EQ(reap_one(tier).code, Code::ok);
  EXPECT_EQ(port.log.back().length, 8192U);
  EXPECT_FALSE(port.log.back().buffered);
  tier.submit({2, slot, true, data.get() + 100, 5000});
  EXPECT_EQ(reap_one(tier).code, Code::ok);
  EXPECT_TRUE(port.log.back().buffered);
  EXPECT_TRUE(tier.counters(0).direct) << "the caller's address, not the device's refusal";
  EXPECT_EQ(
      std::memcmp(port.device[0].bytes.data() + tier.device_offset(slot), data.get() + 100, 5000),
      0);
}

// The port leaves such a read to a worker that may wait for absent pages.
TEST(BlockTier, reads_into_the_programs_memory_are_named_to_the_port_and_never_rounded) {
  ScriptedIoPort port(1, 64 * kMiB, 4096);
  BlockTier tier(port, {.piece_bytes = 16 * kKiB});
  ASSERT_TRUE(tier.grow(64 * kKiB).ok());
  const SlotId slot = *tier.allocate(64 * kKiB, 0);
  const Bytes data = pattern(64 * kKiB, 4);
  tier.submit({.cookie = 1, .slot = slot, .write = true, .data = data.get(), .length = 64 * kKiB});
  ASSERT_EQ(reap_one(tier).code, Code::ok);
  for (const IoRequest& request : port.log) {
    EXPECT_FALSE(request.to_program);
  }
  port.log.clear();
  const Bytes own = pattern(64 * kKiB, 0);
  tier.submit({.cookie = 2,
               .slot = slot,
               .data = own.get(),
               .length = 36 * kKiB,
               .offset = 4 * kKiB,
               .to_program = true});
  ASSERT_EQ(reap_one(tier).code, Code::ok);
  ASSERT_EQ(port.log.size(), 3U);
  for (const IoRequest& request : port.log) {
    EXPECT_TRUE(request.to_program);
  }
  EXPECT_EQ(std::memcmp(own.get(), data.get() + 4 * kKiB, 36 * kKiB), 0);
  EXPECT_EQ(own[36 * kKiB], std::byte{0});
}

TEST(BlockTier, pieces_are_whole_blocks_of_the_device) {
  constexpr std::uint32_t kBlock = 16 << 10;
  ScriptedIoPort port(1, 64 * kMiB, kBlock);
  BlockTier tier(port, {.piece_bytes = 40 * kKiB});
  ASSERT_TRUE(tier.grow(kMiB).ok());
  const SlotId slot = *tier.allocate(kMiB, 0);
  const Bytes data = pattern(kMiB, 5);
  tier.submit({.cookie = 1, .slot = slot, .write = true, .data = data.get(), .length = kMiB});
  EXPECT_EQ(reap_one(tier).code, Code::ok);
  EXPECT_GT(port.log.size(), 20U);
  for (const IoRequest& request : port.log) {
    EXPECT_EQ(request.length % kBlock + request.offset % kBlock, 0U) << request.length;
  }
}

}  // namespace
}  // namespace tiermem

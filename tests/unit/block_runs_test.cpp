// Small transfers to neighbouring slots of a device share one request. Goal: one request for each
// run without a gap, the right bytes in each slot, and each transfer's own error. Method: a
// scripted port counts requests and breaks some; the test compares the bytes of device and memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "block_fixture.hpp"
#include "scripted_io_port.hpp"
#include "tier/block.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kSmall = 4 * kKiB;
constexpr unsigned kSlots = 48;

using Answer = ScriptedIoPort::Answer;

/// One device with adjacent slots; the memory of each slot is not adjacent.
class BlockRuns : public ::testing::TestWithParam<bool> {
 protected:
  BlockRuns() : port_(1, 64 * 1024 * kKiB), tier_(port_, {}) {
    EXPECT_TRUE(tier_.grow(kSmall).ok());
    for (unsigned i = 0; i < kSlots; ++i) {
      slots_.push_back(*tier_.allocate(kSmall, 0));
      EXPECT_EQ(tier_.device_offset(slots_[i]), i * kSmall);
      data_.push_back(pattern(kSmall, i + 1));
      back_.push_back(pattern(kSmall, 0));
      if (!write()) {
        std::memcpy(on_device(i), data_[i].get(), kSmall);
      }
    }
  }
  bool write() const { return GetParam(); }
  std::byte* on_device(unsigned i) { return port_.device[0].bytes.data() + i * kSmall; }
  std::byte* memory(unsigned i) { return write() ? data_[i].get() : back_[i].get(); }
  void submit(unsigned i, std::uint64_t bytes = kSmall) {
    tier_.submit({i, slots_[i], write(), memory(i), bytes});
  }
  bool moved(unsigned i) {
    return std::memcmp(write() ? on_device(i) : back_[i].get(), data_[i].get(), kSmall) == 0;
  }
  /// Returns all completions by cookie. Each transfer must complete once.
  std::map<std::uint64_t, SlotCompletion> reap(unsigned n) {
    std::map<std::uint64_t, SlotCompletion> ended;
    for (unsigned i = 0; i < n; ++i) {
      const SlotCompletion one = reap_one(tier_);
      EXPECT_TRUE(ended.emplace(one.cookie, one).second) << "reported twice: " << one.cookie;
    }
    SlotCompletion more;
    EXPECT_EQ(tier_.reap({&more, 1}), 0u);
    EXPECT_EQ(port_.in_flight, 0u);
    const Status status = tier_.check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
    return ended;
  }

  ScriptedIoPort port_;
  BlockTier tier_;
  std::vector<SlotId> slots_;
  std::vector<Bytes> data_, back_;
};

INSTANTIATE_TEST_SUITE_P(both, BlockRuns, ::testing::Bool(), [](const auto& direction) {
  return direction.param ? std::string("write") : std::string("read");
});

TEST_P(BlockRuns, neighbours_of_one_group_go_in_one_request) {
  for (unsigned i = 0; i < kSlots; ++i) {
    submit(i);
  }
  tier_.dispatch();
  for (const auto& [cookie, end] : reap(kSlots)) {
    EXPECT_EQ(end.code, Code::ok);
    EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
    EXPECT_EQ(end.device_offset, cookie * kSmall);
  }
  EXPECT_EQ(port_.log.size(), 1u);
  EXPECT_EQ(port_.log[0].length, kSlots * kSmall);
  const DeviceCounters counters = tier_.counters(0);
  EXPECT_EQ(write() ? counters.bytes_written : counters.bytes_read, kSlots * kSmall);
  EXPECT_EQ(counters.requests, 1u);
}

TEST_P(BlockRuns, gaps_and_other_orders_end_a_run) {
  for (const unsigned i : {0u, 1u, 2u, 5u, 6u, 4u, 3u, 9u}) {
    submit(i);
  }
  for (const auto& [cookie, end] : reap(8)) {
    EXPECT_EQ(end.code, Code::ok);
    EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
  }
  std::vector<std::uint64_t> lengths;
  for (const IoRequest& request : port_.log) {
    lengths.push_back(request.length / kSmall);
  }
  std::sort(lengths.begin(), lengths.end());
  EXPECT_EQ(lengths, (std::vector<std::uint64_t>{1, 1, 1, 2, 3}));
}

TEST_P(BlockRuns, a_read_and_a_write_are_not_one_request) {
  submit(0);
  tier_.submit({1, slots_[1], !write(), memory(1), kSmall});
  reap(2);
  EXPECT_EQ(port_.log.size(), 2u);
}

TEST_P(BlockRuns, a_part_of_a_slot_ends_a_run) {
  submit(0);
  // Rounded up to two blocks, and not to the slot's end.
  tier_.submit({1, slots_[1], write(), memory(1), 1000});
  submit(2);
  EXPECT_EQ(reap(3).size(), 3u);
  EXPECT_EQ(port_.log.size(), 2u);
  EXPECT_TRUE(moved(0));
  EXPECT_TRUE(moved(2));
}

TEST_P(BlockRuns, a_run_that_fails_is_made_again_one_by_one_and_only_the_guilty_fail) {
  constexpr std::uint64_t kBad = 7 * kSmall;
  port_.script = [&](std::size_t, const IoRequest& request) {
    const bool hit = request.offset <= kBad && kBad < request.offset + request.length;
    return hit ? Answer{.error = EIO} : Answer{};
  };
  for (unsigned i = 0; i < kSlots; ++i) {
    submit(i);
  }
  for (const auto& [cookie, end] : reap(kSlots)) {
    if (cookie == 7) {
      EXPECT_EQ(end.code, Code::io_error);
      EXPECT_EQ(end.native, EIO);
      EXPECT_EQ(end.device_offset, kBad);
    } else {
      EXPECT_EQ(end.code, Code::ok) << cookie;
      EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
      EXPECT_EQ(end.retries, 1u);
    }
  }
  EXPECT_EQ(port_.log.size(), 1u + kSlots);
}

TEST_P(BlockRuns, a_short_run_is_made_again_from_the_start) {
  port_.script = [](std::size_t n, const IoRequest&) {
    return n == 0 ? Answer{.most = 3 * 4096 + 512} : Answer{};
  };
  for (unsigned i = 0; i < 8; ++i) {
    submit(i);
  }
  for (const auto& [cookie, end] : reap(8)) {
    EXPECT_EQ(end.code, Code::ok);
    EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
  }
}

TEST_P(BlockRuns, direct_io_refused_for_a_run_goes_on_buffered) {
  port_.script = [](std::size_t, const IoRequest& request) {
    return request.buffered ? Answer{} : Answer{.error = EINVAL};
  };
  for (unsigned i = 0; i < 8; ++i) {
    submit(i);
  }
  for (const auto& [cookie, end] : reap(8)) {
    EXPECT_EQ(end.code, Code::ok);
    EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
  }
  EXPECT_FALSE(tier_.counters(0).direct);
}

TEST_P(BlockRuns, every_byte_arrives_whatever_the_order_and_the_faults) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  port_.script = [&](std::size_t, const IoRequest& request) {
    switch (random() % 4) {
      case 0:
        return Answer{.error = EAGAIN};
      case 1:
        return Answer{.most =
                          static_cast<std::int64_t>(1 + random() % (request.length / 512)) * 512};
      default:
        return Answer{};
    }
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<unsigned> order(kSlots);
    std::iota(order.begin(), order.end(), 0u);
    // Mostly ascending, as when slots are allocated one after another.
    for (unsigned swaps = random() % 6; swaps > 0; --swaps) {
      std::swap(order[random() % kSlots], order[random() % kSlots]);
    }
    for (unsigned i = 0; i < kSlots; ++i) {
      data_[i] = pattern(kSmall, random() | 1);
      back_[i] = pattern(kSmall, 0);
      if (!write()) {
        std::memcpy(on_device(i), data_[i].get(), kSmall);
      }
    }
    for (const unsigned i : order) {
      submit(i);
    }
    for (const auto& [cookie, end] : reap(kSlots)) {
      EXPECT_EQ(end.code, Code::ok);
      EXPECT_TRUE(moved(static_cast<unsigned>(cookie))) << cookie;
    }
  }
}

}  // namespace
}  // namespace tiermem

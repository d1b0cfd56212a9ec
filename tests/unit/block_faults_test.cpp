// The block tier when devices misbehave. Goal: every transfer ends once, with ok only if all its
// bytes were moved, and never while a piece of it is in progress. Method: a scripted port breaks
// the first, second, nth request; the test then looks at the bytes, not at the calls.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "block_fixture.hpp"
#include "scripted_io_port.hpp"
#include "tier/block.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kSlot = 64 * kKiB;
constexpr std::uint64_t kPiece = 8 * kKiB;

using Answer = ScriptedIoPort::Answer;

/// One device, one slot of eight pieces.
class BlockFaults : public ::testing::TestWithParam<bool> {
 protected:
  BlockFaults() : port_(1, 1024 * kKiB), tier_(port_, options()) {
    EXPECT_TRUE(tier_.grow(kSlot).ok());
    // Not at offset 0, so that device offsets show in errors.
    (void)tier_.allocate(kSlot, 0);
    slot_ = *tier_.allocate(kSlot, 0);
    offset_ = tier_.device_offset(slot_);
    EXPECT_GT(offset_, 0U);
  }
  static BlockOptions options() {
    BlockOptions options;
    options.depth = 4;
    options.piece_bytes = kPiece;
    return options;
  }
  bool write() const { return GetParam(); }

  SlotCompletion run() {
    if (!write()) {
      std::memcpy(port_.device[0].bytes.data() + offset_, data_.get(), kSlot);
    }
    tier_.submit({77, slot_, write(), write() ? data_.get() : back_.get(), kSlot});
    const SlotCompletion completion = reap_one(tier_);
    EXPECT_EQ(completion.cookie, 77U);
    EXPECT_EQ(port_.in_flight, 0U) << "reported with a piece under way";
    SlotCompletion more;
    EXPECT_EQ(tier_.reap({&more, 1}), 0U) << "reported twice";
    const Status status = tier_.check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
    return completion;
  }
  bool moved() const {
    const std::byte* there = write() ? port_.device[0].bytes.data() + offset_ : back_.get();
    return std::memcmp(there, data_.get(), kSlot) == 0;
  }

  ScriptedIoPort port_;
  BlockTier tier_;
  SlotId slot_{};
  std::uint64_t offset_ = 0;
  Bytes data_ = pattern(kSlot, 5);
  Bytes back_ = pattern(kSlot, 0);
};

TEST_P(BlockFaults, a_short_transfer_is_resumed_at_every_block) {
  for (std::int64_t most = 512; most < static_cast<std::int64_t>(kPiece); most += 512) {
    for (std::size_t nth = 0; nth < 8; ++nth) {
      const std::size_t begin = port_.log.size();
      std::memset(back_.get(), 0, kSlot);
      std::memset(port_.device[0].bytes.data() + offset_, 0, kSlot);
      port_.script = [&](std::size_t n, const IoRequest&) {
        return n == begin + nth ? Answer{0, most} : Answer{};
      };
      const SlotCompletion completion = run();
      ASSERT_EQ(completion.code, Code::ok) << most << " bytes of request " << nth;
      ASSERT_EQ(completion.retries, 1U);
      ASSERT_EQ(port_.log.size() - begin, 9U);
      const auto rest = static_cast<std::uint64_t>(most);
      ASSERT_EQ(
          std::count_if(port_.log.begin() + static_cast<std::ptrdiff_t>(begin), port_.log.end(),
                        [&](const IoRequest& request) {
                          return request.length == kPiece - rest &&
                                 (request.offset - offset_) % kPiece == rest;
                        }),
          1);
      ASSERT_TRUE(moved());
    }
  }
}

TEST_P(BlockFaults, transfers_that_stop_inside_a_block_lose_no_byte) {
  std::mt19937 random(11);
  port_.script = [&](std::size_t n, const IoRequest&) {
    return Answer{0, n % 3 == 0 ? 1 << 30 : static_cast<std::int64_t>(1 + random() % kPiece)};
  };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::ok);
  EXPECT_GT(completion.retries, 0U);
  EXPECT_TRUE(moved());
}

TEST_P(BlockFaults, a_device_that_moves_a_byte_at_a_time_inside_a_block_is_given_up) {
  port_.script = [&](std::size_t, const IoRequest&) { return Answer{0, 1}; };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_LE(completion.retries, 8 * BlockTier::kMostTries);
}

TEST_P(BlockFaults, interrupted_requests_are_made_again) {
  for (const int error : {EINTR, EAGAIN}) {
    const std::size_t begin = port_.log.size();
    port_.script = [&](std::size_t n, const IoRequest&) {
      return Answer{n < begin + 10 ? error : 0};
    };
    std::memset(back_.get(), 0, kSlot);
    std::memset(port_.device[0].bytes.data() + offset_, 0, kSlot);
    const SlotCompletion completion = run();
    EXPECT_EQ(completion.code, Code::ok);
    EXPECT_EQ(completion.retries, 10U);
    EXPECT_TRUE(moved());
  }
  EXPECT_EQ(tier_.counters(0).retries, 20U);
  EXPECT_EQ(tier_.counters(0).errors, 0U);
}

TEST_P(BlockFaults, an_interruption_without_end_is_an_error_after_a_bounded_number_of_tries) {
  port_.script = [&](std::size_t, const IoRequest& request) {
    return Answer{request.offset == offset_ + 2 * kPiece ? EAGAIN : 0};
  };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, EAGAIN);
  EXPECT_EQ(completion.retries, BlockTier::kMostTries - 1);
  EXPECT_EQ(completion.device_offset, offset_ + 2 * kPiece);
}

TEST_P(BlockFaults, an_error_on_any_piece_names_errno_device_and_offset) {
  for (const int error : {EIO, ENOSPC, ENODATA, ENXIO, EDQUOT, ECANCELED}) {
    for (std::uint64_t piece = 0; piece < 8; ++piece) {
      const std::uint64_t broken = offset_ + piece * kPiece;
      port_.script = [&](std::size_t, const IoRequest& request) {
        return Answer{request.offset == broken ? error : 0};
      };
      const SlotCompletion completion = run();
      EXPECT_EQ(completion.code,
                error == ENOSPC || error == EDQUOT ? Code::no_capacity : Code::io_error);
      EXPECT_EQ(completion.native, error);
      EXPECT_EQ(completion.device, 0);
      EXPECT_EQ(completion.device_offset, broken);
      const std::string text = tier_.counters(0).last_error;
      EXPECT_NE(text.find(std::to_string(broken)), std::string::npos) << text;
    }
  }
  EXPECT_EQ(tier_.counters(0).errors, 48U);
  port_.script = nullptr;
  EXPECT_EQ(run().code, Code::ok) << "the tier works on after errors";
  EXPECT_TRUE(moved());
}

TEST_P(BlockFaults, an_error_after_a_short_transfer_names_the_byte_it_reached) {
  port_.script = [&](std::size_t n, const IoRequest& request) {
    return n == 0 ? Answer{0, 1024} : Answer{request.length == kPiece - 1024 ? EIO : 0};
  };
  EXPECT_EQ(run().device_offset, offset_ + 1024);
}

TEST_P(BlockFaults, no_bytes_at_all_is_an_error_and_not_a_loop) {
  port_.script = [&](std::size_t n, const IoRequest&) { return n == 3 ? Answer{0, 0} : Answer{}; };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, EIO);
  const std::string text = tier_.counters(0).last_error;
  EXPECT_NE(text.find(write() ? "no bytes written" : "unexpected end of file"), std::string::npos)
      << text;
}

TEST_P(BlockFaults, a_failed_transfer_waits_for_its_other_pieces) {
  port_.per_reap = 1;
  port_.script = [&](std::size_t n, const IoRequest&) { return Answer{n == 0 ? EIO : 0}; };
  tier_.submit({1, slot_, write(), data_.get(), kSlot});
  SlotCompletion completion;
  std::size_t n = tier_.reap({&completion, 1});  // Flushes the first four pieces.
  n += tier_.reap({&completion, 1});             // The first fails while three are in progress.
  EXPECT_EQ(n, 0U);
  EXPECT_EQ(port_.in_flight, 3U);
  EXPECT_EQ(tier_.reap({&completion, 1}), 0U);
  EXPECT_EQ(tier_.reap({&completion, 1}), 0U);
  EXPECT_EQ(tier_.reap({&completion, 1}), 1U);
  EXPECT_EQ(completion.native, EIO);
  EXPECT_EQ(port_.log.size(), 4U) << "no new piece once it failed";
}

TEST_P(BlockFaults, direct_io_refused_by_a_transfer_turns_the_device_buffered_for_good) {
  port_.script = [&](std::size_t, const IoRequest& request) {
    return Answer{request.buffered ? 0 : EINVAL};
  };
  EXPECT_EQ(run().code, Code::ok);
  EXPECT_TRUE(moved());
  const DeviceCounters counters = tier_.counters(0);
  EXPECT_FALSE(counters.direct);
  EXPECT_NE(std::string(counters.reason).find("O_DIRECT refused"), std::string::npos);
  const std::size_t before = port_.log.size();
  EXPECT_EQ(run().code, Code::ok);
  for (std::size_t i = before; i < port_.log.size(); ++i) {
    EXPECT_TRUE(port_.log[i].buffered);
  }
}

TEST_P(BlockFaults, einval_of_a_buffered_request_is_an_error) {
  port_.script = [](std::size_t, const IoRequest&) { return Answer{EINVAL}; };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, EINVAL);
}

TEST_P(BlockFaults, direct_io_that_is_required_is_never_replaced) {
  BlockOptions options;
  options.require_direct = true;
  ScriptedIoPort port(1, 1024 * kKiB);
  port.script = [](std::size_t, const IoRequest&) { return Answer{EINVAL}; };
  BlockTier tier(port, options);
  ASSERT_TRUE(tier.grow(kSlot).ok());
  tier.submit({1, *tier.allocate(kSlot, 0), write(), data_.get(), kSlot});
  EXPECT_EQ(reap_one(tier).native, EINVAL);
  EXPECT_TRUE(tier.counters(0).direct);
}

TEST_P(BlockFaults, a_port_with_room_for_one_request_loses_none) {
  port_.capacity = 1;
  EXPECT_EQ(run().code, Code::ok);
  EXPECT_TRUE(moved());
  EXPECT_EQ(port_.log.size(), 8U);
}

TEST_P(BlockFaults, random_faults_in_random_order_never_report_bytes_that_did_not_move) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    port_.shuffle = &random;
    port_.capacity = 1 + random() % 6;
    bool final_error = false;
    std::memset(back_.get(), 0, kSlot);
    std::memset(port_.device[0].bytes.data() + offset_, 0, kSlot);
    port_.script = [&](std::size_t, const IoRequest&) {
      const Answer answer = random_fault(random, kPiece, seed % 2 == 0);
      final_error = final_error || answer.error == EIO || answer.error == ENODATA;
      return answer;
    };
    const SlotCompletion completion = run();
    ASSERT_EQ(completion.code == Code::ok, !final_error);
    if (completion.code == Code::ok) {
      ASSERT_TRUE(moved());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(both_ways, BlockFaults, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "write" : "read"; });

}  // namespace
}  // namespace tiermem

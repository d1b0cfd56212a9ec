// The queue in front of one slot tier: order, shares of lower priorities, caps and the limit of a
// step. The tier only has a depth.
#include "mover/channel.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tiermem {
namespace {

constexpr std::uint64_t kPage = kSmallestExtent;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class DeepTier final : public SlotTier {
 public:
  explicit DeepTier(unsigned depth) : depth_(depth) {}
  Place place() const override { return {Kind::block, 0}; }
  Result<SlotId> allocate(std::uint64_t, std::uint64_t) override { return Status(Code::busy); }
  void free(SlotId) override {}
  SlotUsage usage() const override { return {}; }
  void set_budget(std::uint64_t) override {}
  Status grow(std::uint64_t) override { return {}; }
  unsigned depth() const override { return depth_; }
  std::uint16_t device_of(SlotId) const override { return 0; }
  const char* device_name(std::uint16_t) const override { return ""; }
  void degrade(std::uint16_t, const char*) override {}
  void trust_again() override {}
  unsigned degraded() const override { return 0; }
  void submit(const SlotTransfer&) override {}
  std::size_t reap(std::span<SlotCompletion>) override { return 0; }

 private:
  unsigned depth_;
};

Channel::Load read(std::uint64_t bytes, Priority priority) {
  return {bytes, false, priority};
}
Channel::Load write(std::uint64_t bytes, Priority priority) {
  return {bytes, true, priority};
}

// The transfers that one step issues.
std::vector<std::uint32_t> step(Channel& channel) {
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> transfers;
  for (const Channel::Issue& issue : channel.issue(bytes)) {
    transfers.push_back(issue.transfer);
  }
  return transfers;
}

using Numbers = std::vector<std::uint32_t>;

TEST(Channel, issues_by_priority_and_oldest_first) {
  DeepTier tier(64);
  Channel channel(&tier);
  channel.queue(1, read(kPage, Priority::background), false);
  channel.queue(2, read(kPage, Priority::demand), false);
  channel.queue(3, read(kPage, Priority::room), false);
  channel.queue(4, read(kPage, Priority::demand), false);
  EXPECT_EQ(step(channel), (Numbers{2, 4, 3, 1}));
  EXPECT_EQ(channel.next(5), kNever);
  EXPECT_EQ(channel.in_flight(), (Channel::InFlight{4, 4, kPage}));
  EXPECT_EQ(channel.check({4, 4, kPage}), "");
  EXPECT_NE(channel.check({4, 3, kPage}), "");
  channel.ended(read(kPage, Priority::background));
  EXPECT_EQ(channel.in_flight(), (Channel::InFlight{3, 3, 0}));
}

TEST(Channel, never_has_more_in_flight_than_the_depth_of_the_tier) {
  DeepTier tier(2);
  Channel channel(&tier);
  for (std::uint32_t i = 0; i < 4; ++i) {
    channel.queue(i, read(kMiB, Priority::demand), false);
  }
  EXPECT_EQ(step(channel), (Numbers{0, 1}));
  EXPECT_EQ(step(channel), Numbers{});
  EXPECT_EQ(channel.next(5), kNever) << "only an end makes more go";
  channel.ended(read(kMiB, Priority::demand));
  EXPECT_EQ(step(channel), Numbers{2});
}

TEST(Channel, a_step_that_reaches_its_limit_asks_for_another) {
  DeepTier tier(64);
  Channel channel(&tier);
  for (std::uint32_t i = 0; i < 6; ++i) {
    channel.queue(i, read(kMiB, Priority::demand), false);
  }
  EXPECT_EQ(step(channel), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(channel.next(5), 5);
  EXPECT_EQ(step(channel), (Numbers{4, 5}));
  EXPECT_EQ(channel.next(5), kNever);
}

TEST(Channel, a_lower_priority_gets_its_share_beside_endless_demands) {
  DeepTier tier(1);
  Channel channel(&tier);
  std::uint32_t number = 0;
  channel.queue(1000, read(kMiB, Priority::prefetch), false);
  for (; number < 8; ++number) {
    channel.queue(number, read(kMiB, Priority::demand), false);
  }
  unsigned before = 0;
  for (;; ++before) {
    ASSERT_LT(before, 20u) << "the prefetch starves";
    const Numbers issued = step(channel);
    ASSERT_EQ(issued.size(), 1u);
    if (issued[0] == 1000) {
      break;
    }
    channel.queue(number++, read(kMiB, Priority::demand), false);
    channel.ended(read(kMiB, Priority::demand));
  }
  EXPECT_EQ(before, 8u) << "an eighth of the bytes that pass it";
}

// In each queue: by priority, by its share beside others, and as reads of a gather.
TEST(Channel, a_step_at_its_limit_issues_nothing_and_asks_for_another) {
  const auto issues_at_the_limit = [](Channel& channel) {
    std::uint64_t bytes = 4 * kMiB;
    return !channel.issue(bytes).empty();
  };
  DeepTier tier(64);
  for (const Priority priority :
       {Priority::demand, Priority::room, Priority::prefetch, Priority::background}) {
    Channel channel(&tier);
    channel.queue(1, read(kPage, priority), false);
    EXPECT_FALSE(issues_at_the_limit(channel));
    EXPECT_EQ(channel.next(5), 5);
    EXPECT_EQ(step(channel), Numbers{1});
  }
  Channel gathers(&tier);
  const GatherRead reads[1] = {{.length = kPage}};
  gathers.queue_gather(2, reads);
  EXPECT_FALSE(issues_at_the_limit(gathers));
  EXPECT_EQ(gathers.next(5), 5);
  EXPECT_EQ(step(gathers), Numbers{2});
  DeepTier narrow(1);
  Channel shares(&narrow);
  shares.queue(1000, read(kPage, Priority::prefetch), false);
  shares.queue(1, read(kMiB, Priority::demand), false);
  shares.queue(2, read(kMiB, Priority::demand), false);
  ASSERT_EQ(step(shares), Numbers{1});  // The prefetch has its share now.
  shares.ended(read(kMiB, Priority::demand));
  ASSERT_FALSE(issues_at_the_limit(shares));
  EXPECT_EQ(step(shares), Numbers{1000});
}

TEST(Channel, background_reads_are_capped_and_writes_alone_fill_the_tier) {
  DeepTier tier(4);
  Channel channel(&tier);
  for (std::uint32_t i = 0; i < 3; ++i) {
    channel.queue(i, read(kDefaultExtent, Priority::background), false);
  }
  EXPECT_EQ(step(channel), Numbers{0}) << "a quarter of the depth";
  channel.queue(10, read(kPage, Priority::demand), false);
  EXPECT_EQ(step(channel), Numbers{10}) << "demands are not capped";
  Channel writes(&tier);
  writes.queue(0, write(kDefaultExtent, Priority::background), true);
  writes.queue(1, write(kDefaultExtent, Priority::background), true);
  EXPECT_EQ(step(writes), (Numbers{0, 1}));
}

TEST(Channel, reads_of_a_gather_follow_demands_and_can_be_forgotten) {
  DeepTier tier(1);
  Channel channel(&tier);
  std::vector<GatherRead> reads(3);
  for (GatherRead& each : reads) {
    each.length = kPage;
  }
  channel.queue_gather(7, reads);
  channel.queue(1, read(kPage, Priority::demand), false);
  std::uint64_t bytes = 0;
  const std::span<const Channel::Issue> issued = channel.issue(bytes);
  ASSERT_EQ(issued.size(), 2u) << "the weights of a page and of one read fit, not of two";
  EXPECT_EQ(issued[0].transfer, 1u);
  EXPECT_EQ(issued[0].read, 0u);
  EXPECT_EQ(issued[1].transfer, 7u);
  EXPECT_EQ(issued[1].read, 1u);
  channel.forget_gather(7);
  channel.read_ended(Channel::kGatherWeight);
  EXPECT_EQ(step(channel), Numbers{});
  channel.each_queued([](std::uint32_t number) { ADD_FAILURE() << number << " is queued"; });
}

TEST(Channel, long_reads_of_a_gather_weigh_as_much_as_any_long_transfer) {
  DeepTier tier(2);
  Channel channel(&tier);
  std::vector<GatherRead> reads(3);
  for (GatherRead& each : reads) {
    each.length = 1u << 20;
    each.to_program = true;
  }
  channel.queue_gather(7, reads);
  std::uint64_t bytes = 0;
  EXPECT_EQ(channel.issue(bytes).size(), 2u);  // The depth of the tier.
  channel.read_ended(Channel::weight(reads[0]));
  bytes = 0;
  EXPECT_EQ(channel.issue(bytes).size(), 1u);
}

}  // namespace
}  // namespace tiermem

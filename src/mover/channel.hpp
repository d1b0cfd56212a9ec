// A channel: the queue in front of one slot tier. It decides which transfer goes to the tier next
// and how many bytes go in one step, by priority with a deficit round robin for the lower
// priorities, and it counts what is in flight. It knows numbers and sizes of transfers and nothing
// else about them: the mover submits what the channel chooses, and reports what has ended. The
// stepping thread only; never waits.
//
//   in_flight().weight <= depth of the tier * kWholeRequest
//   deficit of a priority <= kLargestExtent, and that of `demand` is 0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/arena.hpp"
#include "mover/gather.hpp"
#include "mover/never.hpp"
#include "mover/priority.hpp"
#include "tier/frame.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class Channel {
 public:
  /// The work of one transfer for the tier. It does not change while the transfer is in the
  /// channel.
  struct Load {
    std::uint64_t bytes = 0;
    bool writes = false;
    Priority priority = Priority::demand;
  };
  /// A chosen request: the mover submits it.
  struct Issue {
    std::uint32_t transfer = 0;
    std::uint32_t read = 0;  ///< Number + 1 of a read of a gather; 0: the transfer as a whole.
    unsigned depth = 0;      ///< Whole requests in flight, this one included.
  };
  struct InFlight {
    unsigned weight = 0;                 ///< Sum of weights: see weight().
    unsigned reads = 0;                  ///< Number of reads.
    std::uint64_t background_bytes = 0;  ///< Bytes that no request waits for.
    friend bool operator==(const InFlight&, const InFlight&) = default;
  };

  /// `tier` may be null if no transfer ever comes.
  explicit Channel(SlotTier* tier);
  SlotTier* tier() const { return tier_; }
  const InFlight& in_flight() const { return in_flight_; }

  /// Queues a transfer. `apart`: one that may be held back while others of its priority go on.
  void queue(std::uint32_t transfer, const Load& load, bool apart);
  /// Queues the reads of a gather, which stay the caller's until they are issued or forgotten.
  void queue_gather(std::uint32_t transfer, std::span<const GatherRead> reads);
  /// Drops the reads of a gather that were not issued.
  void forget_gather(std::uint32_t transfer);

  /// Chooses what the tier gets in this step, in the order in which it must be submitted. `step`
  /// counts the bytes of all channels against the limit of one step. The result is valid until the
  /// next call.
  std::span<const Issue> issue(std::uint64_t& step);
  /// A transfer that was issued has ended.
  void ended(const Load& load) { count(load, -1); }
  /// A read of a gather goes to the tier once more.
  void read_again(unsigned weight) { begin_read(weight); }
  void read_ended(unsigned weight);

  /// Returns `now` if the limit of a step ended the last issue(), else kNever: only an event can
  /// make more go.
  std::int64_t next(std::int64_t now) const { return more_ ? now : kNever; }

  /// Checks the invariants. `found`: the sum over the transfers at the tier. Empty, or the breach.
  std::string check(const InFlight& found) const;
  bool any_queued() const {
    bool any = !gathers_.empty();
    for (unsigned priority = 0; priority < kPriorities; ++priority) {
      any = any || waits(priority);
    }
    return any;
  }
  /// Calls `visit(transfer)` for each queued transfer.
  template <typename Visit>
  void each_queued(Visit&& visit) const {
    for (const auto& queues : queues_) {
      for (const Queue& queue : queues) {
        for (const Item& item : queue) {
          visit(item.transfer);
        }
      }
    }
    for (const Gather& gather : gathers_) {
      visit(gather.transfer);
    }
  }

  /// The weight of one whole request. A tier joins small neighbours to one request, so they weigh
  /// less: otherwise there would be too few of them to fill the tier's queue.
  static constexpr unsigned kWholeRequest = 16;
  /// The weight of a read of a gather: twice the tier's depth waits in the tier. A long one has
  /// that of any long transfer.
  static constexpr unsigned kGatherWeight = 8;
  static unsigned weight(std::uint64_t bytes) {
    return static_cast<unsigned>(
        std::clamp<std::uint64_t>(bytes / kSmallestExtent, 1, kWholeRequest));
  }
  static unsigned weight(const GatherRead& read) {
    return read.to_program ? std::max(kGatherWeight, weight(read.length)) : kGatherWeight;
  }

 private:
  struct Item {
    std::uint32_t transfer = 0;
    Load load;
  };
  struct Gather {
    std::uint32_t transfer = 0;
    std::span<const GatherRead> reads;
    std::uint32_t issued = 0;  // Number of issued reads.
  };
  using Queue = Deque<Item>;

  bool waits(unsigned priority) const {
    return !queues_[priority][0].empty() || !queues_[priority][1].empty();
  }
  bool may_issue(const Load& load) const;
  void issue_deficits(std::uint64_t& step);
  bool issue_in_order(std::uint64_t& step);
  bool issue_queue(Queue& queue, std::uint64_t& step);
  bool issue_gathers(std::uint64_t& step);
  bool issue_reads(Gather& gather, std::uint64_t& step);
  void send(const Item& item, std::uint64_t& step);
  void pass_by(Priority priority, std::uint64_t bytes);
  void count(const Load& load, int sign);
  void begin_read(unsigned weight);

  SlotTier* tier_;
  InFlight in_flight_;
  // By priority; the second queue has the transfers that go apart.
  std::array<std::array<Queue, 2>, kPriorities> queues_;
  Deque<Gather> gathers_;  // Behind the demands of whole extents: a gather may have 1000s of reads.
  // By priority: bytes that it may send before all others, for what has passed it.
  std::array<std::uint64_t, kPriorities> deficits_{};
  bool more_ = false;
  Vector<Issue> issued_;  // The result of issue().
};

}  // namespace tiermem

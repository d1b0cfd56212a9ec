// Which transfer goes to the slot tier next.
#include "mover/channel.hpp"

#include "base/error.hpp"

namespace tiermem {
namespace {

// Bytes of one step: what the kernel takes in about 200 us, at 40 to 75 us for each 2 MiB. That is
// the longest that a step may delay the requests that arrive in it.
constexpr std::uint64_t kStepBytes = std::uint64_t{4} << 20;
// The fixed cost of a request, about 2 us, in bytes.
constexpr std::uint64_t kRequestBytes = std::uint64_t{64} << 10;

}  // namespace

Channel::Channel(SlotTier* tier) : tier_(tier) {
  // The smallest transfers count with 8 KiB each, see send(); so a step never allocates here.
  issued_.reserve(tier != nullptr ? kStepBytes / (2 * kSmallestExtent) + 1 : 0);
}

void Channel::queue(std::uint32_t transfer, const Load& load, bool apart) {
  queues_[static_cast<unsigned>(load.priority)][apart ? 1 : 0].push_back({transfer, load});
}

void Channel::queue_gather(std::uint32_t transfer, std::span<const GatherRead> reads) {
  gathers_.push_back({transfer, reads, 0});
}

void Channel::forget_gather(std::uint32_t transfer) {
  std::erase_if(gathers_, [&](const Gather& gather) { return gather.transfer == transfer; });
}

std::span<const Channel::Issue> Channel::issue(std::uint64_t& step) {
  issued_.clear();
  issue_deficits(step);
  more_ = issue_in_order(step);
  return issued_;
}

// A tier serves its requests in its own order. Transfers that no request waits for are capped, so
// that a demand finds little in front of it. Writes alone may fill the tier.
bool Channel::may_issue(const Load& load) const {
  if (in_flight_.weight + weight(load.bytes) > tier_->depth() * kWholeRequest) {
    return false;
  }
  const bool awaited = load.priority <= Priority::room;
  if (awaited || in_flight_.background_bytes == 0 || (load.writes && in_flight_.reads == 0)) {
    return true;
  }
  const std::uint64_t background_cap = std::max(tier_->depth() / 4, 1u) * kDefaultExtent;
  return in_flight_.background_bytes + load.bytes <= background_cap;
}

// By priority alone, a lower one would starve beside threads that always want more than the tier
// can do: prefetches would be late, and no victim would be clean when room is needed.
void Channel::issue_deficits(std::uint64_t& step) {
  for (unsigned priority = 1; priority < kPriorities; ++priority) {
    for (Queue& queue : queues_[priority]) {
      while (!queue.empty() && step < kStepBytes) {
        const Item item = queue.front();
        if (deficits_[priority] < item.load.bytes || !may_issue(item.load)) {
          break;
        }
        queue.pop_front();
        send(item, step);
      }
    }
  }
}

// Returns whether the limit of the step is reached and more could go.
bool Channel::issue_in_order(std::uint64_t& step) {
  for (unsigned priority = 0; priority < kPriorities; ++priority) {
    for (Queue& queue : queues_[priority]) {
      if (issue_queue(queue, step)) {
        return true;
      }
    }
    if (priority == static_cast<unsigned>(Priority::demand) && issue_gathers(step)) {
      return true;
    }
  }
  return false;
}

bool Channel::issue_queue(Queue& queue, std::uint64_t& step) {
  while (!queue.empty() && may_issue(queue.front().load)) {
    if (step >= kStepBytes) {
      return true;
    }
    const Item item = queue.front();
    queue.pop_front();
    send(item, step);
  }
  return false;
}

bool Channel::issue_gathers(std::uint64_t& step) {
  const std::uint64_t before = step;
  bool more = false;
  while (!gathers_.empty() && !more) {
    more = !issue_reads(gathers_.front(), step);
    if (!more) {
      gathers_.pop_front();
    }
  }
  pass_by(Priority::demand, step - before);
  return more && step >= kStepBytes;
}

// Returns whether all reads of the gather are issued.
bool Channel::issue_reads(Gather& gather, std::uint64_t& step) {
  while (gather.issued < gather.reads.size()) {
    const GatherRead& read = gather.reads[gather.issued];
    if (in_flight_.weight + weight(read) > tier_->depth() * kWholeRequest || step >= kStepBytes) {
      return false;
    }
    step += read.length + kRequestBytes;
    begin_read(weight(read));
    issued_.push_back({gather.transfer, ++gather.issued, 0});
  }
  return true;
}

void Channel::send(const Item& item, std::uint64_t& step) {
  step += item.load.bytes + kRequestBytes * weight(item.load.bytes) / kWholeRequest;
  pass_by(item.load.priority, item.load.bytes);
  count(item.load, 1);
  issued_.push_back({item.transfer, 0, (in_flight_.weight + kWholeRequest - 1) / kWholeRequest});
}

// Bytes of one priority go to the tier: the deficits of those that wait below it grow.
void Channel::pass_by(Priority priority, std::uint64_t bytes) {
  // The divisor of each priority's share: room 1/4, prefetches 1/8, background 1/16.
  constexpr std::array<std::uint64_t, kPriorities> kShares = {1, 4, 8, 16};
  std::uint64_t& own = deficits_[static_cast<unsigned>(priority)];
  own -= std::min(own, bytes);
  for (unsigned below = static_cast<unsigned>(priority) + 1; below < kPriorities; ++below) {
    std::uint64_t& deficit = deficits_[below];
    // An empty queue saves nothing up, and neither does the background cap without a limit.
    deficit = waits(below) ? std::min(deficit + bytes / kShares[below], kLargestExtent) : 0;
  }
}

void Channel::count(const Load& load, int sign) {
  const auto add = [sign](auto& sum, auto amount) { sum = sign > 0 ? sum + amount : sum - amount; };
  add(in_flight_.weight, weight(load.bytes));
  add(in_flight_.reads, load.writes ? 0u : 1u);
  add(in_flight_.background_bytes, load.priority > Priority::room ? load.bytes : 0);
}

void Channel::begin_read(unsigned weight) {
  in_flight_.weight += weight;
  ++in_flight_.reads;
}

void Channel::read_ended(unsigned weight) {
  in_flight_.weight -= weight;
  --in_flight_.reads;
}

std::string Channel::check(const InFlight& found) const {
  if (found != in_flight_) {
    return fmt::format("at a tier are {}, {} reads, {} background bytes, and counted {}, {}, {}",
                       found.weight, found.reads, found.background_bytes, in_flight_.weight,
                       in_flight_.reads, in_flight_.background_bytes);
  }
  if (tier_ == nullptr) {
    return in_flight_.weight != 0 ? "transfers are in flight to no tier" : "";
  }
  for (unsigned priority = 0; priority < kPriorities; ++priority) {
    const std::uint64_t deficit = deficits_[priority];
    if (deficit > kLargestExtent || (priority == 0 && deficit != 0)) {
      return fmt::format("priority {} has a deficit of {} bytes", priority, deficit);
    }
    for (const Queue& queue : queues_[priority]) {
      for (const Item& item : queue) {
        if (item.load.bytes == 0 || item.load.priority != static_cast<Priority>(priority)) {
          return fmt::format("transfer {} of {} bytes is in the wrong queue", item.transfer,
                             item.load.bytes);
        }
      }
    }
  }
  for (const Gather& gather : gathers_) {
    if (gather.issued >= gather.reads.size()) {
      return fmt::format("gather {} is queued without reads", gather.transfer);
    }
  }
  return {};
}

}  // namespace tiermem

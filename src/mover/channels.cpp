// Channels: what waits for a slot tier, in which order and in what doses it goes there, and the
// staging frames through which the memory of devices passes. The stepping thread only; never waits.
#include <algorithm>
#include <utility>

#include "mover/mover.hpp"

namespace tiermem {

void Mover::queue_io(Transfer& transfer) {
  // Reads and writes of what nobody waits for are apart: one may be held back while the other goes
  // on.
  const bool apart =
      (transfer.priority > Priority::room && transfer.kind == Transfer::Kind::demote) ||
      transfer.kind == Transfer::Kind::gather;
  channel_of(transfer).queues[static_cast<unsigned>(transfer.priority)][apart ? 1 : 0].push_back(
      transfer.job.transfer);
}

// A device takes what it was given in its own order: what nobody waits for is given to it in small
// doses, so that a demand that comes meanwhile has little in front of it. Writes alone may fill it.
bool Mover::may_issue(const Channel& channel, const Transfer& transfer) const {
  if (channel.in_flight + weight(io_bytes(transfer)) > channel.tier->depth() * kWhole) {
    return false;
  }
  const bool write = writes(transfer);
  const bool awaited = transfer.priority <= Priority::room;
  if (awaited || channel.idle_bytes == 0 || (write && channel.reads == 0)) {
    return true;
  }
  const std::uint64_t dose = std::max(channel.tier->depth() / 4, 1u) * kDefaultExtent;
  return channel.idle_bytes + io_bytes(transfer) <= dose;
}

namespace {

// In one step: what the kernel takes in about 200 us, at 40 to 75 us for each 2 MiB, since that is
// the longest that a step may hold up the requests that come meanwhile.
constexpr std::uint64_t kMostGiven = std::uint64_t{4} << 20;

}  // namespace

// Gives the devices what they have room for, at most so much as one step may. True: there is more,
// for the next step.
bool Mover::issue_io() {
  std::uint64_t given = 0;
  bool more = false;
  for (Channel* channel : {&block_channel_, &files_channel_}) {
    const std::uint64_t before = given;
    more = give_to(*channel, given) || more;
    if (given != before) {
      channel->tier->dispatch();
    }
  }
  return more;
}

bool Mover::give_to(Channel& channel, std::uint64_t& given) {
  give_what_is_owed(channel, given);
  for (auto& queues : channel.queues) {
    for (auto& queue : queues) {
      const bool more = &queue == &gather_queue(channel) ? give_gathers(channel, given)
                                                         : give_queue(channel, queue, given);
      if (more) {
        return true;
      }
    }
  }
  return false;
}

// By priority alone a lower one would never have its turn beside threads that always want more than
// the device gives: what was fetched ahead would come late, and nothing would be clean when room is
// needed.
void Mover::give_what_is_owed(Channel& channel, std::uint64_t& given) {
  for (unsigned priority = 1; priority < kPriorities; ++priority) {
    for (auto& queue : channel.queues[priority]) {
      while (!queue.empty() && given < kMostGiven) {
        Transfer& transfer = transfers_[queue.front()];
        if (channel.owed[priority] < io_bytes(transfer) || !may_issue(channel, transfer)) {
          break;
        }
        queue.pop_front();
        give(channel, transfer, given);
      }
    }
  }
}

bool Mover::give_gathers(Channel& channel, std::uint64_t& given) {
  auto& queue = gather_queue(channel);
  const std::uint64_t before = given;
  bool more = false;
  while (!queue.empty() && !more) {
    more = !issue_gather(channel, transfers_[queue.front()], given, kMostGiven);
    if (!more) {
      queue.pop_front();
    }
  }
  pass_by(channel, Priority::demand, given - before);
  return more && given >= kMostGiven;
}

bool Mover::give_queue(Channel& channel, Deque<std::uint32_t>& queue, std::uint64_t& given) {
  while (!queue.empty() && may_issue(channel, transfers_[queue.front()])) {
    if (given >= kMostGiven) {
      return true;
    }
    Transfer& transfer = transfers_[queue.front()];
    queue.pop_front();
    give(channel, transfer, given);
  }
  return false;
}

void Mover::give(Channel& channel, Transfer& transfer, std::uint64_t& given) {
  constexpr std::uint64_t kFixed = std::uint64_t{64} << 10;  // 2 us for each transfer.
  given += io_bytes(transfer) + kFixed * weight(io_bytes(transfer)) / kWhole;
  pass_by(channel, transfer.priority, io_bytes(transfer));
  transfer.at_device = true;
  book_io(transfer, 1);
  transfer.depth = std::max(transfer.depth, (channel.in_flight + kWhole - 1) / kWhole);
  if (transfer.direct) {
    go_direct(transfer);
    return;
  }
  if (const SlotPages* pages = slot_pages_of(transfer)) {
    give_stored(channel, transfer, *pages);
    return;
  }
  channel.tier->submit({.cookie = transfer.job.transfer,
                        .slot = transfer.slot,
                        .write = writes(transfer),
                        .data = transfer.job.data + transfer.from,
                        .length = io_bytes(transfer),
                        .offset = transfer.from});
}

// So many bytes of one priority go to the device: those that wait below it are owed their share.
void Mover::pass_by(Channel& channel, Priority priority, std::uint64_t bytes) {
  // One part in so many of what passes: of room, of what is fetched ahead, of what nobody waits
  // for.
  constexpr std::array<std::uint64_t, kPriorities> kParts = {1, 4, 8, 16};
  std::uint64_t& own = channel.owed[static_cast<unsigned>(priority)];
  own -= std::min(own, bytes);
  for (unsigned below = static_cast<unsigned>(priority) + 1; below < kPriorities; ++below) {
    std::uint64_t& owed = channel.owed[below];
    // Nothing is saved up for later, nor without end where a dose is what holds it back.
    owed = channel.waits(below) ? std::min(owed + bytes / kParts[below], kLargestExtent) : 0;
  }
}

// A transfer goes to its device, or comes back.
void Mover::book_io(const Transfer& transfer, int sign) {
  Channel& channel = channel_of(transfer);
  const auto add = [sign](auto& books, auto amount) {
    books = sign > 0 ? books + amount : books - amount;
  };
  add(channel.in_flight, weight(io_bytes(transfer)));
  add(channel.reads, writes(transfer) ? 0u : 1u);
  add(channel.idle_bytes, transfer.priority > Priority::room ? io_bytes(transfer) : 0);
}

bool Mover::take_staging(Transfer& transfer) {
  if (transfer.staging) {
    return true;
  }
  // Nobody before those who wait: a large one would never find its run.
  transfer.staging =
      staging_queue_.empty() ? staging_.take(directory_.bytes_of(transfer.ref)) : Staging::Place();
  if (!transfer.staging) {
    staging_queue_.push_back(transfer.job.transfer);
  }
  return static_cast<bool>(transfer.staging);
}

void Mover::give_staging(Transfer& transfer) {
  if (!transfer.staging) {
    return;
  }
  staging_.give(std::exchange(transfer.staging, {}), directory_.bytes_of(transfer.ref));
  while (!staging_queue_.empty()) {
    Transfer& next = transfers_[staging_queue_.front()];
    next.staging = staging_.take(directory_.bytes_of(next.ref));
    if (!next.staging) {
      return;
    }
    staging_queue_.pop_front();
    next.kind == Transfer::Kind::demote ? seal(next) : continue_promote(next);
  }
}

}  // namespace tiermem

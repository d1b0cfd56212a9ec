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

// Gives the devices what they have room for; at most so much that the kernel takes it in about 200
// us, since that is the longest a step may hold up the requests that come meanwhile. True: there is
// more, for the next step.
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
  constexpr std::uint64_t kMost = std::uint64_t{4} << 20;    // 40 to 75 us for each 2 MiB.
  constexpr std::uint64_t kFixed = std::uint64_t{64} << 10;  // And 2 us for each transfer.
  for (auto& queues : channel.queues) {
    for (auto& queue : queues) {
      while (!queue.empty() && &queue == &gather_queue(channel)) {
        if (!issue_gather(channel, transfers_[queue.front()], given, kMost)) {
          break;
        }
        queue.pop_front();
      }
      if (given >= kMost) {
        return true;
      }
      while (!queue.empty() && &queue != &gather_queue(channel) &&
             may_issue(channel, transfers_[queue.front()])) {
        if (given >= kMost) {
          return true;
        }
        Transfer& transfer = transfers_[queue.front()];
        given += io_bytes(transfer) + kFixed * weight(io_bytes(transfer)) / kWhole;
        queue.pop_front();
        book_io(transfer, 1);
        transfer.depth = std::max(transfer.depth, (channel.in_flight + kWhole - 1) / kWhole);
        channel.tier->submit({.cookie = transfer.job.transfer,
                              .slot = transfer.slot,
                              .write = writes(transfer),
                              .data = transfer.job.data + transfer.from,
                              .length = io_bytes(transfer),
                              .offset = transfer.from});
      }
    }
  }
  return false;
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
      staging_queue_.empty() ? staging_.take(bytes_of(transfer.ref)) : Staging::Place();
  if (!transfer.staging) {
    staging_queue_.push_back(transfer.job.transfer);
  }
  return static_cast<bool>(transfer.staging);
}

void Mover::give_staging(Transfer& transfer) {
  if (!transfer.staging) {
    return;
  }
  staging_.give(std::exchange(transfer.staging, {}), bytes_of(transfer.ref));
  while (!staging_queue_.empty()) {
    Transfer& next = transfers_[staging_queue_.front()];
    next.staging = staging_.take(bytes_of(next.ref));
    if (!next.staging) {
      return;
    }
    staging_queue_.pop_front();
    next.kind == Transfer::Kind::demote ? seal(next) : continue_promote(next);
  }
}

}  // namespace tiermem

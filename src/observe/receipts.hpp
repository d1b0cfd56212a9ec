// The record of transfers: counters and times by channel, and the last transfers one by one with
// their reason. Memory is reserved at the start and touched when used; adding never allocates. The
// mover is the only writer and also answers queries, so nothing here is shared.
//   last_.size() == min(added_, kept_), and the newest is last_[(added_ - 1) % kept_].
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/arena.hpp"
#include "observe/histogram.hpp"
#include "tiermem/receipt.hpp"

namespace tiermem {

/// All transfers from one tier to another.
struct ChannelTotals {
  Place from{}, to{};
  std::uint64_t transfers = 0, failed = 0, bytes = 0, requests = 0, retries = 0, buffered = 0;
  std::array<std::uint64_t, Receipt::kReasons> by_reason{};
  Histogram ns;  ///< Times from the decision to the end.
};

/// The result of a query: the channels that were used, and the newest receipts, newest first.
struct ReceiptsCopy {
  Vector<ChannelTotals> channels;
  Vector<Receipt> last;
};

class Receipts {
 public:
  /// Keeps the last `kept` receipts; 0: totals only.
  explicit Receipts(std::uint32_t kept) : kept_(kept) {
    totals_.reserve(kMostChannels);
    last_.reserve(kept);
  }

  void add(const Receipt& receipt) {
    ChannelTotals& totals = channel(receipt.from, receipt.to);
    ++totals.by_reason[static_cast<std::size_t>(receipt.reason)];
    ++(receipt.failed ? totals.failed : totals.transfers);
    totals.bytes += receipt.bytes;
    totals.requests += receipt.requests;
    totals.retries += receipt.retries;
    totals.buffered += receipt.buffered ? 1 : 0;
    totals.ns.add(static_cast<std::uint64_t>(receipt.ended_ns - receipt.begun_ns));
    if (last_.size() < kept_) {
      last_.push_back(receipt);
    } else if (kept_ != 0) {
      last_[static_cast<std::size_t>(added_ % kept_)] = receipt;
    }
    ++added_;
  }

  /// Returns the newest receipt that `wanted` accepts, or null if it is not kept any more.
  template <typename Wanted>
  const Receipt* newest(Wanted wanted) const {
    for (std::uint64_t i = 1; i <= last_.size(); ++i) {
      const Receipt& receipt = last_[static_cast<std::size_t>((added_ - i) % kept_)];
      if (wanted(receipt)) {
        return &receipt;
      }
    }
    return nullptr;
  }

  /// Copies up to `most` receipts.
  void copy(ReceiptsCopy& to, std::size_t most) const {
    to.channels = totals_;
    (void)newest([&](const Receipt& receipt) {
      if (to.last.size() < most) {
        to.last.push_back(receipt);
      }
      return to.last.size() >= most;
    });
  }

  /// Checks the counts against each other.
  bool consistent() const {
    std::uint64_t added = 0;
    for (const ChannelTotals& totals : totals_) {
      added += totals.transfers + totals.failed;
    }
    return added == added_ && last_.size() == std::min(added_, kept_);
  }

 private:
  // Every pair of the tiers that a context can have, and of nowhere. Few of them occur, so a search
  // is short.
  static constexpr std::size_t kMostChannels = 64;

  ChannelTotals& channel(Place from, Place to) {
    for (ChannelTotals& totals : totals_) {
      if (totals.from == from && totals.to == to) {
        return totals;
      }
    }
    totals_.emplace_back();
    totals_.back().from = from;
    totals_.back().to = to;
    return totals_.back();
  }

  Vector<ChannelTotals> totals_;
  Vector<Receipt> last_;  // A ring buffer.
  const std::uint64_t kept_;
  std::uint64_t added_ = 0;
};

}  // namespace tiermem

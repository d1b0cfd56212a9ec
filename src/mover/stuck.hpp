// Stuck extents: those that could not leave, and when they are tried again. Either the kernel kept
// them in their windows, or their other pages could not be read, or they need another slot.
// Refusals of room wait for them: up to kMostKeptNs for the kernel, and for one more try to read.
// Extent::stuck marks them. The stepping thread only; never waits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mover/never.hpp"
#include "residency/extents.hpp"

namespace tiermem {

class Stuck {
 public:
  static constexpr std::int64_t kRetryNs = 10'000'000;

  /// The extent could not leave now, for a reason that others need not share.
  void leaves_later(Extent& extent, std::int64_t now) {
    until_ = now + kRetryNs;
    extent.stuck = true;
  }
  /// The kernel kept the extent in its window.
  void kept(Extent& extent, std::int64_t now) {
    since_ = since_ == 0 ? std::max<std::int64_t>(now, 1) : since_;
    kept_until_ = now + kRetryNs;
    leaves_later(extent, now);
  }
  /// The kernel let an extent go.
  void let_go(Extent& extent) {
    since_ = 0;
    extent.stuck = false;
  }
  /// Other pages of the extent could not be read, to be written with it.
  void unread(Extent& extent, std::int64_t now) {
    leaves_later(extent, now);
    unread_until_ = until_;
  }
  /// The extent needs another slot, and there is none before `until`.
  void lacks_slot(Extent& extent, std::int64_t until) {
    extent.stuck = true;
    until_ = std::max(until_, until);
    lacks_slot_until_ = until_;
  }
  /// Slots have become free.
  void slots_came(std::int64_t now) { until_ = std::min(until_, now + kRetryNs); }
  /// Extents with pages that could not be read may have been tried by now.
  void note_rereads(std::int64_t now) { reread_last_ = now >= unread_until_ ? now : reread_last_; }

  /// The extent is not tried again yet.
  bool is_stuck(const Extent& extent, std::int64_t now) const {
    return extent.stuck && now < until_;
  }
  /// Returns whether extents will be tried again, and a request admitted at that time may wait for
  /// it. Where writes are not paused, extents that lacked a slot may find one. After the time has
  /// passed they may have gone: no request waits for them any more.
  bool retries(std::int64_t admitted, bool writes_paused, std::int64_t now) const {
    const bool kept = now < kept_until_ && (since_ == 0 || now - since_ < kMostKeptNs);
    const bool unread = now < unread_until_ && reread_last_ < admitted;
    return kept || unread || (now < lacks_slot_until_ && !writes_paused);
  }
  /// Returns when extents are tried again, else kNever.
  std::int64_t next(std::int64_t now) const {
    std::int64_t next = kNever;
    for (const std::int64_t at : {until_, kept_until_, unread_until_}) {
      next = at > now ? std::min(next, at) : next;
    }
    return next;
  }
  std::int64_t since() const { return since_; }
  std::int64_t until() const { return until_; }

 private:
  static constexpr std::int64_t kMostKeptNs = 10'000'000'000;

  std::int64_t until_ = 0;
  std::int64_t since_ = 0;  // The kernel has kept extents since then; 0: it keeps none.
  std::int64_t lacks_slot_until_ = 0;
  std::int64_t kept_until_ = 0;
  std::int64_t unread_until_ = 0;
  std::int64_t reread_last_ = 0;  // The last step in which no unread extent had to wait.
};

}  // namespace tiermem

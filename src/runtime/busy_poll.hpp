// Decides whether the mover's thread polls instead of sleeping. A touch waits for it twice: when
// the fault arrives, and when the bytes have arrived. Each wake-up of a sleeping processor costs 10
// to 50 µs in a virtual machine. The thread therefore stays awake for a while after each touch,
// unless another thread wants its processor. Pure: times in, decisions out. One thread.
#pragma once

#include <cstdint>

namespace tiermem {

class BusyPoll {
 public:
  /// Interval between two offers of the processor.
  static constexpr std::int64_t kYieldNs = 20'000;
  /// An offer this long means that another thread ran.
  static constexpr std::int64_t kTakenNs = 30'000;
  static constexpr std::int64_t kRestNs = 5'000'000;     ///< Pause after two such offers.
  static constexpr std::int64_t kQuietNs = 100'000'000;  ///< See is_quiet().

  /// Time to stay awake after a touch; 0: never.
  explicit BusyPoll(std::int64_t span_ns) : span_ns_(span_ns) {}

  /// Takes the number of touches up to `now`. Returns whether it has grown, if the span is not 0.
  bool note_touches(std::uint64_t touches, std::int64_t now) {
    if (touches == touches_ || span_ns_ == 0) {
      return false;
    }
    if (now - until_ >= kQuietNs) {
      quiet_since_ = now;  // The thread slept and has not observed the time since.
    }
    touches_ = touches;
    until_ = now + span_ns_;
    return true;
  }
  /// Notes whether more threads want processors than there are. A single observation may be chance.
  void note_crowd(bool crowded, std::int64_t now) {
    if (crowded && crowded_) {
      quiet_since_ = now;
    }
    crowded_ = crowded;
  }
  /// Whether the machine has had a spare processor for kQuietNs, as far as is known.
  bool is_quiet(std::int64_t now) const { return now - quiet_since_ >= kQuietNs; }
  /// The end of the span, if no touch comes.
  std::int64_t until() const { return until_; }
  /// Whether to poll; otherwise the thread sleeps.
  bool stays_awake(std::int64_t now) const { return now < until_ && now >= rests_until_; }
  /// Whether to offer the processor to other threads; yielded() must follow.
  bool must_yield(std::int64_t now) const { return now - offered_at_ >= kYieldNs; }
  /// Notes that the processor was offered from `before` to `after`.
  void yielded(std::int64_t before, std::int64_t after) {
    offered_at_ = after;
    const bool taken = after - before >= kTakenNs;
    if (taken && taken_) {
      rests_until_ = after + kRestNs;
      quiet_since_ = rests_until_;
    }
    taken_ = taken;
  }

 private:
  const std::int64_t span_ns_;
  std::uint64_t touches_ = 0;
  std::int64_t until_ = 0;
  std::int64_t rests_until_ = 0;
  std::int64_t quiet_since_ = 0;
  std::int64_t offered_at_ = 0;
  bool taken_ = false;    // At the last offer.
  bool crowded_ = false;  // At the last observation.
};

}  // namespace tiermem

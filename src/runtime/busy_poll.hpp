// Whether the mover's thread looks again instead of sleeping. A touch waits for it twice, when it
// comes and when its bytes are there, and each wake-up of a sleeping processor costs 10 to 50 µs in
// a virtual machine. So the thread stays awake for a while after each touch, unless somebody else
// wants its processor. Pure: times in, decisions out. One thread.
#pragma once

#include <cstdint>

namespace tiermem {

class BusyPoll {
 public:
  static constexpr std::int64_t kYieldNs = 20'000;    ///< It offers the processor each so often.
  static constexpr std::int64_t kTakenNs = 30'000;    ///< From then on somebody has taken it:
  static constexpr std::int64_t kRestNs = 5'000'000;  ///< twice running, and it rests for so long.
  static constexpr std::int64_t kQuietNs = 100'000'000;  ///< See is_quiet().

  /// Awake for so long after a touch; 0: never.
  explicit BusyPoll(std::int64_t span_ns) : span_ns_(span_ns) {}

  /// So many touches have come by `now`. True if some are new, and there is a span.
  bool note_touches(std::uint64_t touches, std::int64_t now) {
    if (touches == touches_ || span_ns_ == 0) {
      return false;
    }
    if (now - until_ >= kQuietNs) {
      quiet_since_ = now;  // It slept, and knows nothing of the time since.
    }
    touches_ = touches;
    until_ = now + span_ns_;
    return true;
  }
  /// Whether more threads want processors than there are. One such look may be chance.
  void note_crowd(bool crowded, std::int64_t now) {
    if (crowded && crowded_) {
      quiet_since_ = now;
    }
    crowded_ = crowded;
  }
  /// Whether the machine has had a processor to spare for kQuietNs: nothing says otherwise.
  bool is_quiet(std::int64_t now) const { return now - quiet_since_ >= kQuietNs; }
  /// When it ends, if no touch comes.
  std::int64_t until() const { return until_; }
  /// Look again; else sleep.
  bool stays_awake(std::int64_t now) const { return now < until_ && now >= rests_until_; }
  /// Time to offer the processor to others: yielded() is to follow.
  bool must_yield(std::int64_t now) const { return now - offered_at_ >= kYieldNs; }
  /// It was offered from `before` to `after`.
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
  bool taken_ = false;    // When it was offered last.
  bool crowded_ = false;  // At the last look.
};

}  // namespace tiermem

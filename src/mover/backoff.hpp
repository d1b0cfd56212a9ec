// Exponential backoff: how long an operation that failed is left alone. Pure: the caller passes the
// time. The stepping thread only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class Backoff {
 public:
  /// The first failure waits `least` nanoseconds; each further one twice as long, up to `most`.
  explicit Backoff(std::int64_t least = 10'000'000, std::int64_t most = 1'000'000'000)
      : least_(least), most_(most) {}

  /// Returns whether the operation may be tried at `now`.
  bool over(std::int64_t now) const { return now >= until_; }
  std::int64_t until() const { return until_; }
  /// Returns whether the backoff is at its maximum. No request should wait for the next try then.
  bool gave_up() const { return step_ >= most_; }

  void failed(std::int64_t now) {
    step_ = std::clamp(step_ * 2, least_, most_);
    until_ = now + step_;
  }
  void worked() { step_ = 0; }
  /// Waits until that time for another reason than a failure.
  void wait(std::int64_t until) { until_ = until; }
  void end() { until_ = step_ = 0; }

 private:
  std::int64_t least_, most_;
  std::int64_t until_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace tiermem

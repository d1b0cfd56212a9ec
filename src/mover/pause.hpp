// A pause after what failed: not tried again for a while, longer each time until it works once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class Pause {
 public:
  explicit Pause(std::int64_t least = 10'000'000, std::int64_t most = 1'000'000'000)
      : least_(least), most_(most) {}

  bool over(std::int64_t now) const { return now >= until_; }
  std::int64_t until() const { return until_; }
  /// It failed so often in a row that nobody should wait for the next try.
  bool long_since() const { return step_ >= most_; }

  void failed(std::int64_t now) {
    step_ = std::clamp(step_ * 2, least_, most_);
    until_ = now + step_;
  }
  void worked() { step_ = 0; }
  /// Until that time, for another reason than a failure.
  void wait(std::int64_t until) { until_ = until; }
  void end() { until_ = step_ = 0; }

 private:
  std::int64_t least_, most_;
  std::int64_t until_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace tiermem

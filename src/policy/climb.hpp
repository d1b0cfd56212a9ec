// Climb: when an extent in a slower memory of its space moves to a faster one. Pure; the mover's
// thread only.
//
// The mover looks at the extents of slower memories in rounds. In each round it sees which were
// used since the last one. An extent that was used in two rounds since it came there climbs: one
// use may be the one for which it came. So an extent that has sunk does not climb for the use that
// was under way. Climbs that sink again without a use were in vain: each doubles the length of a
// round, and each climb that was used halves it. The bytes that climb in a round have a limit. The
// traffic between two memories under pressure is therefore bounded, however the extents are used.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class Climb {
 public:
  static constexpr unsigned kUses = 2;  ///< Rounds with a use before an extent climbs.
  static constexpr std::int64_t kRoundNs = 10'000'000;
  static constexpr unsigned kMostReluctance = 7;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

  /// Returns whether a round is under way at `now`. One begins when the length of the last one has
  /// passed since its begin. `fastest_bytes`: the budget of the fastest memory.
  bool begin_round(std::int64_t now, std::uint64_t fastest_bytes) {
    if (!in_round_ && now >= next_round_) {
      in_round_ = true;
      next_round_ = now + (kRoundNs << reluctance_);
      left_ = std::min(kMostBytes, fastest_bytes / 8);
      any_ = false;
      cursor_ = 0;
    }
    return in_round_;
  }
  /// Returns the number of the next extent to look at, of `count`. Ends the round after the last.
  std::uint32_t next(std::uint32_t count) {
    in_round_ = cursor_ + 1 < count;
    return cursor_ < count ? cursor_++ : 0;
  }
  /// Returns whether an extent with this many uses climbs.
  static bool wants(unsigned uses) { return uses >= kUses; }
  /// Returns whether `bytes` may climb in this round. One extent always may.
  bool may(std::uint64_t bytes) const { return !any_ || bytes <= left_; }
  void climbed(std::uint64_t bytes) {
    any_ = true;
    left_ -= std::min(left_, bytes);
  }
  /// An extent that has climbed was used since, or left again without a use.
  void was_used() { reluctance_ -= reluctance_ != 0 ? 1 : 0; }
  void was_in_vain() { reluctance_ = std::min(reluctance_ + 1, kMostReluctance); }
  unsigned reluctance() const { return reluctance_; }

 private:
  std::int64_t next_round_ = 0;
  std::uint64_t left_ = 0;
  std::uint32_t cursor_ = 0;
  unsigned reluctance_ = 0;
  bool in_round_ = false;
  bool any_ = false;
};

}  // namespace tiermem

// The decision whether the pages of an extent arrive watched. Watched pages that are not written
// leave without being moved and hashed. But the first write to each watched extent is a fault,
// which costs as much as a miss without its read: several times the saving. So only extents are
// watched that have left unchanged several times in a row. The number is learned from the outcome
// for watched extents. It is zero for a program that only reads. It is large if reads and writes
// alternate. It is also large if writes restore the earlier bytes, which no checksum shows, as for
// reference counts that go up and down. One extent in 32 is always watched, to have something to
// learn from.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class WriteTracking {
 public:
  /// The history of an extent: how often in a row it left unchanged. All-zero: new.
  using Memory = std::uint8_t;
  static constexpr Memory kMost = 31;

  bool watches(std::uint32_t extent, Memory unwritten) const {
    return extent % kOneOf == 0 || unwritten >= least_;
  }

  /// A watched extent leaves.
  void left(Memory& unwritten, bool written) {
    note(unwritten, written);
    written_ += written ? 1 : 0;
    if (++seen_ < kRound) {
      return;
    }
    if (written_ * 4 > kRound) {
      least_ = std::min<unsigned>(least_ * 2 + 1, kMost);
    } else if (written_ * 16 < kRound) {
      least_ /= 2;
    }
    seen_ = written_ = 0;
  }

  /// An unwatched extent leaves. `written`: according to its checksums.
  static void note(Memory& unwritten, bool written) {
    unwritten = written ? 0 : std::min<Memory>(unwritten + 1, kMost);
  }

 private:
  static constexpr std::uint32_t kOneOf = 32;
  static constexpr unsigned kRound = 64;

  unsigned least_ = 1;
  unsigned seen_ = 0, written_ = 0;
};

}  // namespace tiermem

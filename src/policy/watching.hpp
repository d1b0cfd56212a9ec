// Whether the pages of an extent come watched. Those that are not written then leave without being
// moved and hashed, but the first write to each extent is a fault, which costs as much as a miss
// without its read: several times what is saved. So only those are watched that have left as they
// came some times in a row. How many times is learned from what becomes of those that are watched:
// none in a program that only reads, many where pages are read and written by turns, or written
// with what was there before (counts of references that go up and down), which no checksum shows.
// One extent of 32 is always watched, so that there is something to learn from.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class Watching {
 public:
  /// What is remembered of an extent: how often in a row it left as it came. All-zero: new.
  using Memory = std::uint8_t;
  static constexpr Memory kMost = 31;

  bool watches(std::uint32_t extent, Memory unwritten) const {
    return extent % kOneOf == 0 || unwritten >= least_;
  }

  /// An extent leaves that was watched.
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

  /// One leaves that was not; `written`: by its checksums.
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

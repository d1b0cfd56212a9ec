// Which extents are offered to a tier that compresses. Packing costs a processor some microseconds
// a page, so it must pay twice: the bytes of the buffer shrink, and packed pages are read again
// before many of them go on to the next tier. Values in, values out. Pure; the mover's thread only.
//
// Each rule has a run of failures. After kPatience of them one extent in kTry is offered, so a
// change is noticed at a sixteenth of the cost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiermem {

class Compression {
 public:
  static constexpr unsigned kPatience = 16;
  static constexpr unsigned kTry = 16;

  /// The record of one buffer: whether its bytes shrink.
  struct Shrinks {
    std::uint8_t failures = 0;  ///< In a row, up to kPatience.
    std::uint8_t tries = 0;     ///< Since the last extent that was offered.
  };

  /// Returns whether the next extent of the buffer is offered.
  bool offers(Shrinks& buffer) {
    return (buffer.failures < kPatience || is_turn(buffer.tries)) &&
           (futile_ < kPatience || is_turn(tries_));
  }
  /// An extent of the buffer, of `bytes`, takes `stored` bytes now.
  static void note_stored(Shrinks& buffer, std::uint64_t bytes, std::uint64_t stored) {
    const bool shrinks = stored <= bytes / 4 * 3;
    buffer.failures = static_cast<std::uint8_t>(
        shrinks ? 0 : std::min<unsigned>(buffer.failures + 1U, kPatience));
  }
  /// Packed bytes went on to the next tier. If few packed bytes were read in the time in which a
  /// window of them went on, that is a failure: they only pass through, as those of a scan do. As
  /// long as the tier has room for all of them, nothing goes on, and there is no failure.
  void note_passed(std::uint64_t bytes) {
    passed_ += bytes;
    if (passed_ >= kWindow) {
      futile_ = read_ * kLeastUse >= passed_ ? 0 : std::min(futile_ + 1, kPatience);
      passed_ = 0;
      read_ = 0;
    }
  }
  void note_read(std::uint64_t bytes) { read_ += bytes; }

 private:
  static constexpr std::uint64_t kWindow = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kLeastUse = 8;  // One byte is read for this many that go on.

  template <typename Count>
  static bool is_turn(Count& tries) {
    tries = static_cast<Count>((tries + 1) % kTry);
    return tries == 0;
  }

  std::uint64_t passed_ = 0, read_ = 0;  // In the current window.
  unsigned futile_ = 0;                  // Windows in a row.
  unsigned tries_ = 0;
};

}  // namespace tiermem

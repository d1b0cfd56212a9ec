// Which extents are offered to a tier that compresses. Packing costs a processor some microseconds
// a page, so it must pay twice: the bytes of the buffer shrink, and packed pages are read again
// before they go on to the next tier. Values in, values out. Pure; the mover's thread only.
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
  /// Bytes were packed, or packed bytes were read. A window of packed bytes of which too few were
  /// read is a failure: they only pass through, as those of a scan do.
  void note_packed(std::uint64_t bytes) {
    packed_ += bytes;
    if (packed_ >= kWindow) {
      futile_ = read_ * kLeastUse >= packed_ ? 0 : std::min(futile_ + 1, kPatience);
      packed_ = 0;
      read_ = 0;
    }
  }
  void note_read(std::uint64_t bytes) { read_ += bytes; }

 private:
  static constexpr std::uint64_t kWindow = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kLeastUse = 8;  // One byte in this many must be read.

  template <typename Count>
  static bool is_turn(Count& tries) {
    tries = static_cast<Count>((tries + 1) % kTry);
    return tries == 0;
  }

  std::uint64_t packed_ = 0, read_ = 0;  // In the current window.
  unsigned futile_ = 0;                  // Windows in a row.
  unsigned tries_ = 0;
};

}  // namespace tiermem

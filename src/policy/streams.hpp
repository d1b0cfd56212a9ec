// Runs of extents that one thread touches in order: read-ahead for scans.
//
// Pure: no clock, locks or randomness; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tiermem/types.hpp"

namespace tiermem {

class Streams {
 public:
  /// The extents to read ahead: [first, first + count) of the same buffer.
  struct Ahead {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    /// The touch belongs to a run: the extents of a run are brought as a whole.
    bool goes_on = false;
  };
  /// A touch of an absent extent.
  struct Touch {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint32_t index = 0;  ///< Index of the extent,
    std::uint32_t of = 0;     ///< in a buffer of this many extents.
    /// A run enters each extent at its beginning; steps over rows do not.
    bool at_its_begin = true;
  };
  /// Returns what to read ahead, up to `most` extents beyond the touched one.
  Ahead touched(const Touch& touch, std::uint32_t most);

 private:
  struct Stream {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint32_t last = 0;   // The newest touch.
    std::uint32_t until = 0;  // Requested up to here.
    std::uint32_t window = 0;
    bool began = false;  // The newest extent was entered at its beginning.
    std::uint64_t used = 0;
  };
  std::array<Stream, 32> streams_{};
  std::uint64_t clock_ = 0;
};

// A stream is sequential from its second touch on that entered an extent at its beginning. The
// read-ahead doubles while the stream continues. A scan meets extents that are still in transfer,
// and each of those touches shows its progress.
inline Streams::Ahead Streams::touched(const Touch& touch, std::uint32_t most) {
  const auto [buffer, thread, index, extents, at_its_begin] = touch;
  ++clock_;
  Stream* oldest = &streams_[0];
  for (Stream& stream : streams_) {
    if (stream.used < oldest->used) {
      oldest = &stream;
    }
    const bool same = stream.used != 0 && stream.buffer == buffer && stream.thread == thread;
    const std::uint32_t reach = std::max(stream.until, stream.last + 1);
    if (!same || index < stream.last || index > reach) {
      continue;
    }
    stream.used = clock_;
    if (index == stream.last) {
      return {};
    }
    stream.last = index;
    if (!at_its_begin || (stream.window == 0 && !std::exchange(stream.began, true))) {
      stream.began = at_its_begin;
      stream.window = 0;
      stream.until = index + 1;
      return {};
    }
    if (stream.until > index + 1 + stream.window / 2) {
      return {.goes_on = true};  // Half of the read-ahead is still in front of the stream.
    }
    stream.window = std::clamp<std::uint32_t>(stream.window * 2, 2, std::max(most, 2u));
    const std::uint32_t first = std::max(stream.until, index + 1);
    stream.until = std::min({index + 1 + std::min(stream.window, most), extents, first + most});
    return stream.until > first ? Ahead{first, stream.until - first, true} : Ahead{.goes_on = true};
  }
  *oldest = {.buffer = buffer,
             .thread = thread,
             .last = index,
             .until = index + 1,
             .began = at_its_begin,
             .used = clock_};
  return {};
}

}  // namespace tiermem

// Runs of extents touched in order, each by one thread: what a scan will touch next is read ahead.
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
  /// Extents [first, first + count) of the same buffer are to come next.
  struct Ahead {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    bool goes_on = false;  ///< The touch belongs to a run: the extents of a run come whole.
  };
  /// A touch of what is absent.
  struct Touch {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint32_t index = 0;   ///< The extent,
    std::uint32_t of = 0;      ///< of so many.
    bool at_its_begin = true;  ///< A run comes into each extent there; steps over rows do not.
  };
  /// At most `most` extents are asked for beyond the touched one.
  Ahead touched(const Touch& touch, std::uint32_t most);

 private:
  struct Stream {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint32_t last = 0;   // The newest touch.
    std::uint32_t until = 0;  // Asked for up to here.
    std::uint32_t window = 0;
    bool began = false;  // The newest extent was come into at its begin.
    std::uint64_t used = 0;
  };
  std::array<Stream, 32> streams_{};
  std::uint64_t clock_ = 0;
};

// A stream is sequential from its second touch on that came to an extent at its begin. What is
// asked for ahead doubles while it goes on: a scan meets extents that are still on their way, and
// each of those touches tells how far it has come.
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
      return {.goes_on = true};  // Half of it is still ahead.
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

// Steps of equal width: a column of a matrix, a field of records, a backward walk. Each step
// touches another page, mostly of another extent, so no run of extents shows the pattern. Without
// read-ahead each step would wait for the device. A stream is recognised at its fourth touch and
// then followed: it requests the bytes of the next steps, twice as far each time that it has
// continued.
//
// Pure: no clock, locks or randomness; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "tiermem/types.hpp"

namespace tiermem {

class Strides {
 public:
  /// A touch of absent bytes. Old kernels round addresses down to their page.
  struct Touch {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint64_t offset = 0;
    std::uint64_t of = 0;  ///< Bytes of the buffer.
  };
  /// The steps to read ahead: byte at(i) for each i below `count`.
  struct Ahead {
    std::uint64_t from = 0;
    double step = 0;
    std::uint32_t skipped = 0;  ///< Number of steps that were requested before.
    std::uint32_t count = 0;
    std::uint64_t at(std::uint32_t i) const {
      return from + static_cast<std::uint64_t>(std::llround(step * (skipped + i + 1)));
    }
  };
  /// Returns what to read ahead, up to `most` steps beyond the touched byte.
  Ahead touched(const Touch& touch, std::uint32_t most) {
    ++clock_;
    for (Stream& stream : streams_) {
      if (stream.is_of(touch) && stream.follows(touch.offset)) {
        stream.used = clock_;
        return ask(stream, touch, most);
      }
    }
    Past& past = past_of(touch);
    std::uint64_t origin = 0;
    const bool seen = past.ends_in_steps(touch.offset, origin);
    past.add(touch.offset);
    if (!seen) {
      return {};
    }
    Stream& stream = oldest(streams_);
    stream = Stream{};
    stream.buffer = touch.buffer;
    stream.thread = touch.thread;
    stream.used = clock_;
    stream.origin = origin;
    stream.last = touch.offset;
    stream.steps = 3;
    stream.window = 2;
    return ask(stream, touch, most);
  }

 private:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::size_t kPast = 12;  // Several streams of a thread may alternate.

  static double distance(std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(static_cast<std::int64_t>(to - from));
  }

  // Addresses may be rounded; short steps tolerate less.
  static double tolerance(double step) {
    return std::min(static_cast<double>(kPage), std::abs(step) / 8);
  }

  struct Stream {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint32_t asked = 0;   // Steps beyond `last`.
    std::uint32_t window = 0;  // Number of steps to request.
    std::uint64_t origin = 0, last = 0;
    std::uint64_t steps = 0;  // Steps from `origin` to `last`.
    std::uint64_t used = 0;

    bool is_of(const Touch& touch) const {
      return used != 0 && buffer == touch.buffer && thread == touch.thread;
    }
    double step() const { return distance(origin, last) / static_cast<double>(steps); }
    // Returns whether the touch is one of the requested steps, or the next one: the stream has
    // reached it.
    bool follows(std::uint64_t offset) {
      const double far = distance(last, offset);
      const double k = std::round(far / step());
      if (!(k >= 0 && k <= asked + 1) || std::abs(far - k * step()) > tolerance(step())) {
        return false;
      }
      const auto gone = static_cast<std::uint32_t>(k);
      if (gone != 0) {
        last = offset;
        steps += gone;
        asked -= std::min(asked, gone);
      }
      return true;
    }
  };

  // The newest touches of one thread in one buffer that belong to no stream.
  struct Past {
    Handle buffer = 0;
    std::uint32_t thread = 0;
    std::uint64_t used = 0;
    std::uint32_t count = 0;
    std::array<std::uint64_t, kPast> offsets{};

    void add(std::uint64_t offset) { offsets[count++ % kPast] = offset; }
    // Returns whether three touches lie on the way to this one, at least a page apart.
    bool ends_in_steps(std::uint64_t offset, std::uint64_t& origin) const {
      for (std::uint32_t i = 1; i <= std::min<std::size_t>(count, kPast); ++i) {
        const std::uint64_t first = offsets[(count - i) % kPast];
        const double step = distance(first, offset) / 3;
        if (std::abs(step) > static_cast<double>(kPage) && has(offset, -step) &&
            has(offset, -2 * step)) {
          origin = first;
          return true;
        }
      }
      return false;
    }
    bool has(std::uint64_t offset, double away) const {
      return std::any_of(offsets.begin(), offsets.begin() + std::min<std::size_t>(count, kPast),
                         [&](std::uint64_t one) {
                           return std::abs(distance(offset, one) - away) <= tolerance(away);
                         });
    }
  };

  static Ahead ask(Stream& stream, const Touch& touch, std::uint32_t most) {
    if (stream.asked > stream.window / 2) {
      return {};  // Half of the read-ahead is still in front of the stream.
    }
    stream.window = std::min(stream.window * 2, most);
    const double step = stream.step();
    const double room = step > 0 ? static_cast<double>(touch.of - touch.offset - 1)
                                 : static_cast<double>(touch.offset);
    const auto left = static_cast<std::uint32_t>(
        std::min(room / std::abs(step), static_cast<double>(stream.window)));
    const Ahead ahead{touch.offset, step, stream.asked, left - std::min(left, stream.asked)};
    stream.asked = std::max(left, stream.asked);
    return ahead;
  }

  template <typename Entry, std::size_t kEntries>
  static Entry& oldest(std::array<Entry, kEntries>& entries) {
    return *std::min_element(entries.begin(), entries.end(),
                             [](const auto& a, const auto& b) { return a.used < b.used; });
  }
  Past& past_of(const Touch& touch) {
    const auto same = std::find_if(past_.begin(), past_.end(), [&](const Past& one) {
      return one.used != 0 && one.buffer == touch.buffer && one.thread == touch.thread;
    });
    Past& past = same != past_.end() ? *same : oldest(past_);
    if (same == past_.end()) {
      past = Past{};
      past.buffer = touch.buffer;
      past.thread = touch.thread;
    }
    past.used = clock_;
    return past;
  }

  std::array<Stream, 32> streams_{};
  std::array<Past, 32> past_{};
  std::uint64_t clock_ = 0;
};

}  // namespace tiermem

// The staging: host memory through which bytes pass between a device and a slot, or between two
// devices. It has frames of one size, which the mover keeps for its whole life, each in at most 64
// pieces. An extent takes a run of pieces, so that large and small extents share the memory. Pure
// bookkeeping; the stepping thread only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/arena.hpp"
#include "tier/frame.hpp"

namespace tiermem {

class Staging {
 public:
  /// A run of pieces.
  struct Place {
    std::uint32_t frame = 0;  ///< Number of the frame + 1; 0: none.
    std::uint32_t first = 0;
    explicit operator bool() const { return frame != 0; }
  };

  explicit Staging(std::uint64_t frame_bytes)
      : frame_bytes_(frame_bytes), piece_bytes_(std::max(kSmallestExtent, frame_bytes / 64)) {}

  /// `data`: where the host has it. The frame is the caller's to give back.
  void add(FrameId frame, std::byte* data) { frames_.push_back({frame, data, 0}); }
  bool empty() const { return frames_.empty(); }
  std::uint64_t bytes() const { return frames_.size() * frame_bytes_; }
  std::uint64_t frame_bytes() const { return frame_bytes_; }

  /// Takes a place for `bytes`, a power of two up to frame_bytes(). Returns none while no run is
  /// free.
  Place take(std::uint64_t bytes) {
    const std::uint32_t pieces = pieces_of(bytes);
    for (std::uint32_t i = 0; i < frames_.size(); ++i) {
      for (std::uint32_t first = 0; first < pieces_of(frame_bytes_); first += pieces) {
        if ((frames_[i].used & mask(first, pieces)) == 0) {
          frames_[i].used |= mask(first, pieces);
          return {i + 1, first};
        }
      }
    }
    return {};
  }
  void give(Place place, std::uint64_t bytes) {
    frames_[place.frame - 1].used &= ~mask(place.first, pieces_of(bytes));
  }

  /// Returns the bytes of staging that a place for `bytes` takes.
  std::uint64_t bytes_of_place(std::uint64_t bytes) const {
    return pieces_of(bytes) * piece_bytes_;
  }
  std::uint64_t taken() const {
    std::uint64_t pieces = 0;
    for (const Frame& frame : frames_) {
      pieces += static_cast<std::uint64_t>(std::popcount(frame.used));
    }
    return pieces * piece_bytes_;
  }

  FrameId frame(Place place) const { return frames_[place.frame - 1].frame; }
  std::byte* data(Place place) const {
    return frames_[place.frame - 1].data + place.first * piece_bytes_;
  }
  template <typename Each>
  void each_frame(Each&& each) const {
    for (const Frame& frame : frames_) {
      each(frame.frame);
    }
  }

 private:
  struct Frame {
    FrameId frame{};
    std::byte* data = nullptr;
    std::uint64_t used = 0;  // A bit for each piece.
  };
  std::uint32_t pieces_of(std::uint64_t bytes) const {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / piece_bytes_));
  }
  static std::uint64_t mask(std::uint32_t first, std::uint32_t pieces) {
    return (~std::uint64_t{0} >> (64 - pieces)) << first;
  }

  const std::uint64_t frame_bytes_, piece_bytes_;
  Vector<Frame> frames_;
};

}  // namespace tiermem

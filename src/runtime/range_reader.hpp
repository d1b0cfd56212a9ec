// Reads of ranges into memory of the program without promoting their extents: for copies that say
// so, and for objects of a store. One thread creates and uses a reader: the caller's or that of an
// operation.
//
//   resident extents   copied under a pin
//   whole blocks       read by the device directly into the memory, if that is aligned to 4 KiB and
//                      not of a mapped buffer of this context; checked there
//   other blocks       read into staging memory within the budget, checked, and copied
//   the rest           through views, which promote: in flight, only on a GPU, in parts, sparse,
//                      damaged
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "mover/gather.hpp"
#include "runtime/call_limits.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

class RangeReader {
 public:
  /// A range, and its result.
  struct Range {
    Handle buffer = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;  ///< 0: nothing.
    std::byte* to = nullptr;
    Status status;
  };

  /// `call`: its name for messages.
  RangeReader(Context::Impl& impl, const char* call, const CallLimits& limits)
      : impl_(impl), call_(call), limits_(limits) {}

  /// Reads all ranges, and sets the status of each. Errors of a range: those of Context::read().
  void run(std::span<Range> ranges);

 private:
  static constexpr unsigned kSegments = 4;  // As many requests are under way at a time.

  /// The wanted part of one extent that is not in memory.
  struct Piece {
    ExtentRef ref;
    std::uint32_t range;  // Its index.
    std::uint32_t begin;  // Offset in the extent.
    std::uint32_t length;
    std::byte* to;
    std::uint32_t unit;  // The smallest read.
    bool direct;         // Whole blocks, read to `to`.
  };
  struct Segment;

  void begin(std::uint32_t index);
  void add(const Piece& piece, bool may_be_direct);
  void read_pieces();
  void fill(Segment& segment);
  void post(Segment& segment);
  void take(Segment& segment);
  bool check(const GatherRead& read) const;
  void view(const Piece& piece);
  const Span& span_of(const Piece& piece) const { return spans_[piece.range]; }

  Context::Impl& impl_;
  const char* const call_;
  const CallLimits limits_;
  std::span<Range> ranges_;
  Vector<Span> spans_;               // By range: its whole buffer.
  Vector<Piece> pieces_;             // To read, by extent and offset.
  Vector<Piece> rest_;               // The pieces that need views.
  std::size_t cursor_ = 0;           // The first of pieces_ that has not been requested.
  std::uint64_t staging_bytes_ = 0;  // Bytes of one segment.
  ExtentRef into_ = kNoExtent;
};

}  // namespace tiermem

#include "runtime/range_reader.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "runtime/held.hpp"

namespace tiermem {
namespace {

// Bytes of one read, and of the reads of one request that go to the program.
constexpr std::uint32_t kMostRead = 2u << 20;
constexpr std::uint64_t kMostSegment = std::uint64_t{8} << 20;

}  // namespace

/// Reads of one request.
struct RangeReader::Segment {
  std::byte* staging = nullptr;
  std::size_t first = 0, end = 0;  // Its pieces.
  GatherList list;
  Vector<GatherRead> reads;  // One for each piece.
  Vector<Checksums::Hash> sums;
  // Last: the request ends before the memory that the mover reads for it.
  std::optional<PostedRequest> posted;
};

void RangeReader::run(std::span<Range> ranges) {
  ranges_ = ranges;
  spans_.resize(ranges.size());
  for (std::uint32_t i = 0; i < ranges.size(); ++i) {
    begin(i);
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return std::tuple(a.ref, a.begin) < std::tuple(b.ref, b.begin);
  });
  if (!pieces_.empty()) {
    read_pieces();
  }
  for (const Piece& piece : rest_) {
    if (ranges_[piece.range].status.ok()) {
      view(piece);
    }
  }
}

// Copies what is resident, and notes the rest.
void RangeReader::begin(std::uint32_t index) {
  Range& range = ranges_[index];
  Span& whole = spans_[index];
  if (range.length == 0) {
    return;
  }
  Span wanted;
  range.status = impl_.residency.resolve({range.buffer, range.offset, range.length, kRead, {}, 0},
                                         wanted, call_);
  if (range.status.ok()) {
    range.status = impl_.residency.resolve({range.buffer, 0, 0, kRead, {}, 0}, whole, call_);
  }
  if (range.status.ok()) {
    range.status = impl_.check_apart(call_, wanted, range.offset, range.to, "to");
  }
  if (!range.status.ok()) {
    return;
  }
  Position at;
  std::uint64_t rest = 0;
  const bool mapped = impl_.find_address(range.to, true, at, rest) ||
                      impl_.find_address(range.to + range.length - 1, true, at, rest);
  const std::uint64_t extent = std::uint64_t{1} << whole.shift;
  const std::uint64_t lead = whole.offset;
  const std::uint32_t unit = impl_.read_unit(*whole.record);
  const std::size_t known = pieces_.size();
  for (std::uint64_t done = 0; done < range.length;) {
    const std::uint64_t from = lead + range.offset + done;
    const std::uint64_t length = std::min(extent - from % extent, range.length - done);
    ViewRecord view;
    if (impl_.residency.hit({range.buffer, range.offset + done, length, kRead, {}, 0}, view)) {
      std::memcpy(range.to + done, view.data, length);
      (void)impl_.residency.end(view);
    } else {
      add({.ref =
               whole.first + static_cast<ExtentRef>((from >> whole.shift) - (lead >> whole.shift)),
           .range = index,
           .begin = static_cast<std::uint32_t>(from % extent),
           .length = static_cast<std::uint32_t>(length),
           .to = range.to + done,
           .unit = unit,
           .direct = false},
          !mapped);
    }
    done += length;
  }
  if (pieces_.size() != known && limits_.never_waits) {
    pieces_.resize(known);
    range.status = fail(Code::busy,
                        "{}: not all of the {} bytes at offset {} are in memory; pass a timeout, "
                        "or prefetch them first",
                        call_, range.length, range.offset);
  }
}

// Cuts the piece into whole blocks that a device may read to the program's memory, and the rest.
void RangeReader::add(const Piece& piece, bool may_be_direct) {
  const std::uint32_t end = piece.begin + piece.length;
  const auto part = [&](std::uint32_t from, std::uint32_t to, bool direct) {
    for (std::uint32_t next = 0; from < to; from = next) {
      const std::uint32_t aligned = from / piece.unit * piece.unit;
      next = std::min(to, aligned + std::max(kMostRead, piece.unit));
      Piece& added = pieces_.emplace_back(piece);
      added.begin = from;
      added.length = next - from;
      added.to = piece.to + (from - piece.begin);
      added.direct = direct;
    }
  };
  const std::uint32_t first = (piece.begin + piece.unit - 1) / piece.unit * piece.unit;
  const std::uint32_t last = end / piece.unit * piece.unit;
  const auto address = reinterpret_cast<std::uintptr_t>(piece.to + (first - piece.begin));
  if (!may_be_direct || first >= last || address % kSmallestExtent != 0) {
    part(piece.begin, end, false);
    return;
  }
  part(piece.begin, first, false);
  part(first, last, true);
  part(last, end, false);
}

// ---- Reads without promoting -------------------------------------------------------------------

void RangeReader::read_pieces() {
  std::uint64_t staged = 0;
  std::uint32_t unit = 0;
  for (const Piece& piece : pieces_) {
    staged += piece.direct ? 0 : piece.length + 2 * std::uint64_t{piece.unit};
    unit = std::max(unit, piece.unit);
  }
  std::optional<HeldBuffer> buffer;
  ViewRecord view;
  std::optional<HeldViews> held;
  if (staged != 0) {
    const std::uint64_t bytes = std::min(impl_.most_staging(), std::bit_ceil(kSegments * staged));
    const Result<Handle> made = bytes / kSegments >= 2 * std::uint64_t{unit}
                                    ? impl_.alloc_staging(bytes)
                                    : Result<Handle>(Code::no_capacity);
    if (made.ok()) {
      buffer.emplace(impl_, *made);
      const Access all{*made, 0, bytes, kDiscard, {}, 0};
      if (impl_.acquire_within(call_, {&all, 1}, limits_, {&view, 1}).ok()) {
        held.emplace(impl_.residency, std::span(&view, 1));
        staging_bytes_ = bytes / kSegments;
        into_ = impl_.residency.buffers.at(Buffers::index_of(*made))
                    .first.load(std::memory_order_relaxed);
      }
    }
    if (staging_bytes_ == 0) {  // No room: views say why, if they find none either.
      const auto direct = std::stable_partition(pieces_.begin(), pieces_.end(),
                                                [](const Piece& piece) { return piece.direct; });
      rest_.assign(direct, pieces_.end());
      pieces_.erase(direct, pieces_.end());
    }
  }
  std::array<Segment, kSegments> segments;  // After the memory: their requests end before it.
  for (unsigned i = 0; i < kSegments; ++i) {
    segments[i].staging = static_cast<std::byte*>(view.data) + i * staging_bytes_;
    post(segments[i]);
  }
  for (unsigned i = 0; segments[i].posted.has_value(); i = (i + 1) % kSegments) {
    segments[i].posted->await();
    take(segments[i]);
    segments[i].posted.reset();
    post(segments[i]);
  }
}

// Plans reads for the next pieces, as many as one request may have.
void RangeReader::fill(Segment& segment) {
  segment.first = cursor_;
  segment.reads.clear();
  segment.list = {};
  std::uint64_t direct = 0, staged = 0, sums = 0;
  for (; cursor_ < pieces_.size(); ++cursor_) {
    const Piece& piece = pieces_[cursor_];
    const std::uint32_t begin = piece.begin / piece.unit * piece.unit;
    const std::uint32_t end =
        (piece.begin + piece.length + piece.unit - 1) / piece.unit * piece.unit;
    // A piece to be staged may be longer than the staging memory: the rest follows as another one.
    std::uint32_t length = end - begin;
    if (piece.direct ? direct != 0 && direct + length > kMostSegment
                     : staged + length > staging_bytes_) {
      const auto room = static_cast<std::uint32_t>(
          piece.direct ? 0 : (staging_bytes_ - staged) / piece.unit * piece.unit);
      if (room == 0 || !segment.reads.empty()) {
        break;
      }
      Piece tail = piece;
      tail.begin = begin + room;
      tail.length = piece.begin + piece.length - tail.begin;
      tail.to = piece.to + (tail.begin - piece.begin);
      pieces_[cursor_].length = tail.begin - piece.begin;
      pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(cursor_) + 1, tail);
      length = room;
    }
    const Piece& taken = pieces_[cursor_];
    segment.reads.push_back({.ref = taken.ref,
                             .offset = begin,
                             .length = length,
                             .data = taken.direct ? taken.to : segment.staging + staged,
                             .to_program = taken.direct,
                             .rows = taken.length,
                             .sums = nullptr});
    (taken.direct ? direct : staged) += length;
    sums += length / kSmallestExtent;
  }
  segment.end = cursor_;
  segment.sums.resize(sums);
  Checksums::Hash* next = segment.sums.data();
  for (GatherRead& read : segment.reads) {
    read.sums = std::exchange(next, next + read.length / kSmallestExtent);
  }
  segment.list.reads = segment.reads;
  segment.list.into = staged != 0 ? into_ : kNoExtent;
}

void RangeReader::post(Segment& segment) {
  if (cursor_ == pieces_.size() || limits_.cancelled()) {
    rest_.insert(rest_.end(), pieces_.begin() + static_cast<std::ptrdiff_t>(cursor_),
                 pieces_.end());
    cursor_ = pieces_.size();
    return;
  }
  fill(segment);
  Request& request = segment.posted.emplace(impl_).request;
  request.kind = RequestKind::gather;
  for (std::size_t i = segment.first; i < segment.end; ++i) {
    const Span& span = span_of(pieces_[i]);
    if (request.spans.empty() || request.spans.back().record != span.record) {
      request.spans.push_back(span);
    }
  }
  request.gather = &segment.list;
  request.deadline_ns = limits_.deadline_ns;
  request.cancel_with = limits_.cancel;
  segment.posted->post();
}

// The request has ended: the program's memory is its own again. Views find out what is wrong with
// pieces that could not be read, one by one: one freed buffer ends the whole request.
void RangeReader::take(Segment& segment) {
  for (std::size_t i = 0; i < segment.reads.size(); ++i) {
    const GatherRead& read = segment.reads[i];
    const Piece& piece = pieces_[segment.first + i];
    if (read.found == GatherRead::Found::zeros) {
      std::memset(piece.to, 0, piece.length);
    } else if (read.found != GatherRead::Found::bytes || !check(read)) {
      rest_.push_back(piece);
    } else if (!piece.direct) {
      std::memcpy(piece.to, read.data + (piece.begin - read.offset), piece.length);
    }
  }
}

bool RangeReader::check(const GatherRead& read) const {
  for (std::uint32_t at = 0; read.sum_bytes != 0 && at < read.length; at += read.sum_bytes) {
    const Checksums::Hash& sum = read.sums[at / read.sum_bytes];
    if (sum != Checksums::Hash{} && Checksums::hash(read.data + at, read.sum_bytes) != sum) {
      return false;
    }
  }
  return true;
}

// ---- The rest ----------------------------------------------------------------------------------

void RangeReader::view(const Piece& piece) {
  Range& range = ranges_[piece.range];
  const Access access{range.buffer, range.offset + static_cast<std::uint64_t>(piece.to - range.to),
                      piece.length, kRead,
                      {},           0};
  ViewRecord view;
  range.status = impl_.acquire_within(call_, {&access, 1}, limits_, {&view, 1});
  if (range.status.ok()) {
    const HeldViews held(impl_.residency, {&view, 1});
    std::memcpy(piece.to, view.data, piece.length);
  }
}

}  // namespace tiermem

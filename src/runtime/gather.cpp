// Gather: many rows of one buffer into memory of the program, or into another buffer. The calling
// thread checks, copies, and plans the mover's reads; only this thread touches the program's
// memory. Any thread.
//
//   resident extents   copied under a pin, in the order of the list
//   other rows         sorted; their blocks are read from slots and files into staging memory
//                      within the budget, neighbours in one request, and checked and copied from
//                      there; the extents are not promoted
//   the rest           through views, as in read(): in flight, only on a GPU, in parts, damaged
#include "runtime/gather.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "mover/gather.hpp"

namespace tiermem {
namespace {

// The share of the DRAM budget that rows of another buffer may pin.
constexpr unsigned kBudgetPerMost = 16;
// One is read into while another is copied from, so that the devices' queues stay full.
constexpr unsigned kSegments = 4;
// A list of rows, or memory for rows, must fit into the addresses of a process.
constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 47;

}  // namespace

// ---- Rows and their pieces ---------------------------------------------------------------------

Status RowCall::check(const Rows& rows) {
  rows_ = rows;
  rows_.stride = rows_.stride != 0 ? rows_.stride : rows_.row_bytes;
  Status status = impl_.usable(call_);
  if (status.ok()) {
    const Access all{rows_.buffer, 0, 0, mode_, {}, 0};
    status = impl_.residency.resolve(all, span_, call_);
  }
  if (!status.ok()) {
    return status;
  }
  if (rows_.row_bytes == 0 || rows_.row_bytes > kMostRow) {
    return fail(Code::invalid_argument, "{}: rows of {} bytes; accepted are 1 to {}", call_,
                rows_.row_bytes, kMostRow);
  }
  const auto copied = checked_mul(rows_.count, rows_.row_bytes);
  if (rows_.count > kMostListBytes / sizeof(*rows_.index) || !copied || *copied > kMostListBytes) {
    return fail(
        Code::invalid_argument,
        "{}: {} rows of {} bytes exceed 2^47 bytes; pass the number of rows in the list as count",
        call_, rows_.count, rows_.row_bytes);
  }
  if (rows_.count != 0 && rows_.index == nullptr) {
    return fail(Code::invalid_argument, "{}: {} rows, but the list of rows is null; pass the list",
                call_, rows_.count);
  }
  const std::uint64_t bytes = span_.length;
  const bool any = rows_.offset <= bytes && rows_.row_bytes <= bytes - rows_.offset;
  last_ = any ? (bytes - rows_.offset - rows_.row_bytes) / rows_.stride : 0;
  for (std::uint64_t i = 0; i < rows_.count; ++i) {
    if (!any || read_once(rows_.index[i]) > last_) {
      return not_inside(i);
    }
  }
  return {};
}

Status RowCall::not_inside(std::uint64_t row) const {
  return fail(Code::invalid_argument,
              "{}: row {} of the list is number {}, which is not inside the buffer of {} bytes; "
              "pass rows inside it",
              call_, row, read_once(rows_.index[row]), span_.length);
}

Status RowCall::check_apart(std::uint64_t begin, std::uint64_t end, const char* what) const {
  for (std::uint64_t i = 0; i < rows_.count; ++i) {
    const std::uint64_t from = in_window(i);
    if (from != kNowhere && from < end && begin < from + rows_.row_bytes) {
      return fail(
          Code::invalid_argument,
          "{}: row {} of the list, at offset {}, and {} overlap in one buffer; copy through "
          "other memory",
          call_, i, from - span_.offset, what);
    }
  }
  return {};
}

Status RowCall::check_memory(const void* memory, std::uint64_t bytes, const char* what) const {
  const auto [begin, end] = impl_.in_window_of(span_, memory, bytes);
  return begin < end ? check_apart(begin, end, what) : Status();
}

Status RowCall::check_list(const void* memory, const char* what) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto list = reinterpret_cast<std::uintptr_t>(rows_.index);
  const bool apart = list >= begin + rows_.count * rows_.row_bytes ||
                     begin >= list + rows_.count * sizeof(*rows_.index);
  return apart ? Status()
               : fail(Code::invalid_argument,
                      "{}: the list of rows and {} overlap; keep them apart", call_, what);
}

std::uint64_t RowCall::rows_at_once() const {
  return std::max<std::uint64_t>(1, kMostPieces / ((rows_.row_bytes >> span_.shift) + 2));
}

Access RowCall::extent_of(std::uint64_t in_window, std::uint32_t mode) const {
  const std::uint64_t extent = std::uint64_t{1} << span_.shift;
  const std::uint64_t lead = span_.offset;
  const std::uint64_t begin = std::max(in_window & ~(extent - 1), lead);
  const std::uint64_t end = std::min((in_window | (extent - 1)) + 1, lead + span_.length);
  return {rows_.buffer, begin - lead, end - begin, mode, {}, 0};
}

Status Context::Impl::run_rows(std::unique_ptr<RowCall> call, const Rows& rows) {
  Status status = call->check(rows);
  return status.ok() ? call->run() : std::move(status);
}

Result<OpHandle> Context::Impl::run_rows_later(std::unique_ptr<RowCall> call, const Rows& rows,
                                               std::unique_ptr<Request> op) {
  Status status = call->check(rows);
  if (!status.ok()) {
    return status;
  }
  return begin_errand(*errands_, std::move(call), std::move(op));
}

Result<OpHandle> Context::Impl::run_later(std::unique_ptr<Errand> errand,
                                          std::unique_ptr<Request> op) {
  return begin_errand(*copy_errands_, std::move(errand), std::move(op));
}

Result<OpHandle> Context::Impl::begin_errand(Errands& errands, std::unique_ptr<Errand> errand,
                                             std::unique_ptr<Request> op) {
  const bool has_deadline = errand->deadline() != Request::kForever;
  Result<OpHandle> begun = errands.send(ops, std::move(op), std::move(errand));
  if (has_deadline) {
    port_->wake();  // The mover's thread ends it if it waits too long for its turn.
  }
  return begun;
}

std::int64_t Context::Impl::end_late_errands(std::int64_t now) {
  return std::min(errands_->end_late(now), copy_errands_->end_late(now));
}

void Context::Impl::end_cancelled_errands() {
  errands_->end_cancelled();
  copy_errands_->end_cancelled();
}

// Adds the row to the message.
Status RowCall::at_row(std::uint64_t row, const Status& why) const {
  ErrorInfo info =
      why.info() != nullptr ? *why.info() : error_info(why.code(), "{}", why.message());
  const ErrorInfo longer = error_info(info.code, "{}: row {} of the list, number {}: {}", call_,
                                      row, read_once(rows_.index[row]), why.message());
  std::memcpy(info.text, longer.text, sizeof(info.text));
  info.buffer = rows_.buffer;
  return Status(info);
}

// ---- Gather ------------------------------------------------------------------------------------

/// A part of the staging memory, and the reads that fill it.
struct GatherCall::Segment {
  std::byte* data = nullptr;
  GatherList list;
  Vector<GatherRead> reads;
  Vector<std::size_t> first_piece;  // The first piece of each read; the next entry is the end.
  Vector<Checksums::Hash> sums;
  // Last: the request ends before the memory that the mover reads for it.
  std::optional<PostedRequest> posted;
};

Status GatherCall::check(const Rows& rows) {
  Status status = RowCall::check(rows);
  if (!status.ok() || rows_.count == 0) {
    return status;
  }
  if (into_buffer_ == 0) {
    if (to_ == nullptr) {
      return fail(Code::invalid_argument,
                  "{}: the memory to copy to is null; pass memory of {} bytes", call_,
                  rows_.count * rows_.row_bytes);
    }
    status = check_list(to_, "the memory to copy to");
    return status.ok() ? check_memory(to_, rows_.count * rows_.row_bytes, "the memory to copy to")
                       : std::move(status);
  }
  Span span;
  const Access range{into_buffer_, into_offset_, rows_.count * rows_.row_bytes, kDiscard, {}, 0};
  status = impl_.residency.resolve(range, span, call_);
  if (status.ok() && into_buffer_ == rows_.buffer) {
    status = check_apart(span.offset, span.offset + span.length, "the range to copy to");
  }
  if (!status.ok()) {
    return status;
  }
  const auto [begin, end] =
      impl_.in_window_of(span, rows_.index, rows_.count * sizeof(*rows_.index));
  return begin < span.offset + span.length && span.offset < end
             ? fail(Code::invalid_argument,
                    "{}: the list of rows is in the range to copy to; keep it elsewhere", call_)
             : Status();
}

Status GatherCall::run() {
  unit_ = impl_.read_unit(*span_.record);
  cache_ =
      !limits_.never_waits && rows_.row_bytes <= RowCache::kMostRow ? impl_.row_cache() : nullptr;
  Status status = into_buffer_ != 0 ? to_buffer() : to_memory();
  // The buffer may have been freed during the reads, and its extents given to another.
  return status.ok() && span_.record->generation.load(std::memory_order_seq_cst) !=
                            Buffers::generation_of(rows_.buffer)
             ? fail(Code::stale_handle,
                    "{}: handle {:#x} was freed during the call; free it after the call", call_,
                    rows_.buffer)
             : std::move(status);
}

Status GatherCall::to_memory() {
  for (std::uint64_t first = 0; first < rows_.count;) {
    const std::uint64_t n = std::min(rows_at_once(), rows_.count - first);
    std::byte* const at = to_ + first * rows_.row_bytes;
    Status status = begin(first, n, at);
    if (status.ok() && !pieces_.empty()) {
      status = read_below({}, at);
    }
    for (std::size_t i = 0; i < rest_.size() && status.ok();) {
      status = view_some(i, at);
    }
    if (!status.ok()) {
      return status;
    }
    first += n;
  }
  return {};
}

// Works in pieces that fit into memory. Extents that must be pinned together are requested
// together, so that two such calls never wait for each other.
Status GatherCall::to_buffer() {
  const std::uint64_t most = impl_.config.dram.budget / kBudgetPerMost;
  const std::uint64_t rows = std::clamp<std::uint64_t>(most / rows_.row_bytes, 1, rows_at_once());
  Access range{.buffer = into_buffer_};
  Status status;
  for (std::uint64_t first = 0; first < rows_.count && status.ok(); first += rows) {
    const std::uint64_t n = std::min(rows, rows_.count - first);
    range.offset = into_offset_ + first * rows_.row_bytes;
    range.length = n * rows_.row_bytes;
    range.mode = kDiscard;
    ViewRecord view;
    status = acquire({&range, 1}, {&view, 1});
    if (!status.ok()) {
      break;
    }
    auto* const at = static_cast<std::byte*>(view.data);
    {
      const HeldViews held(impl_.residency, {&view, 1});
      try {
        status = begin(first, n, at);
      } catch (...) {
        std::memset(at, 0, range.length);  // For the same reason as below.
        throw;
      }
      if (status.ok()) {
        for (const Piece& piece : pieces_) {
          // A discarding view must overwrite all of it.
          std::memset(at + piece.to, 0, piece.length);
        }
      } else {
        std::memset(at, 0, range.length);
      }
    }
    range.mode = kWrite;
    if (status.ok() && !pieces_.empty()) {
      status = read_below(range, nullptr);
    }
    for (std::size_t i = 0; i < rest_.size() && status.ok(); ++i) {
      status = view_one(rest_[i], range);
    }
  }
  return status;
}

// Copies the resident pieces; leaves the others in pieces_, in order.
Status GatherCall::begin(std::uint64_t first, std::uint64_t n, std::byte* to) {
  first_ = first;
  guesses_.clear();
  pieces_.clear();
  rest_.clear();
  // The held view, until it is released or this function ends. The number of its extent is a
  // separate variable: the compiler keeps a variable that no other function sees in a register.
  struct Held {
    ~Held() { let_go(); }
    void let_go() noexcept {
      if (holds) {
        (void)residency.end(view);
        holds = false;
      }
    }
    Residency& residency;
    ViewRecord view{};
    bool holds = false;
  } in_memory{impl_.residency};
  std::uint64_t held = kNowhere, absent = kNowhere;  // Numbers of extents.
  const std::uint64_t mask = (std::uint64_t{1} << span_.shift) - 1;
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto copy = [&](std::uint64_t from, std::uint64_t done, std::uint32_t length) {
      const std::uint64_t extent = from >> span_.shift;
      const std::uint64_t at = i * rows_.row_bytes + done;
      if (extent != held && extent != absent) {
        in_memory.let_go();
        in_memory.holds = impl_.residency.hit(extent_of(from, kRead), in_memory.view);
        held = in_memory.holds ? extent : kNowhere;
        absent = in_memory.holds ? absent : extent;
      }
      if (extent != held) {
        const Piece piece{from, at, length};
        if (!guess(piece, to)) {
          pieces_.push_back(piece);
        }
        return;
      }
      // The view begins with the buffer if the buffer begins inside the extent.
      const std::uint64_t begin = std::max(from & ~mask, span_.offset);
      std::memcpy(to + at, static_cast<const std::byte*>(in_memory.view.data) + (from - begin),
                  length);
    };
    if (!each_piece(first + i, copy)) [[unlikely]] {
      return not_inside(first + i);
    }
  }
  in_memory.let_go();
  if (!pieces_.empty() && limits_.never_waits) {
    return fail(Code::busy,
                "{}: not all of the {} rows are resident; pass a timeout, or prefetch them first",
                call_, rows_.count);
  }
  Status confirmed = guesses_.empty() ? Status() : confirm();
  sort_pieces();
  return confirmed;
}

void GatherCall::sort_pieces() {
  const auto less = [](const Piece& a, const Piece& b) { return a.from < b.from; };
  if (!std::is_sorted(pieces_.begin(), pieces_.end(), less)) {
    std::sort(pieces_.begin(), pieces_.end(), less);
  }
}

// ---- Rows in the cache -------------------------------------------------------------------------

RowCache* Context::Impl::row_cache() {
  if (config.row_cache == 0) {
    return nullptr;
  }
  std::call_once(row_cache_once_, [&] {
    const std::uint64_t bytes = config.row_cache / RowCache::kSetBytes * RowCache::kSetBytes;
    const Result<Handle> memory = alloc(bytes, {.label = "row cache"}, kOfHeaps | kInOwnDomain);
    if (!memory.ok()) {
      log_warn("gather: no row cache: {}", memory.message());
      return;
    }
    HeldBuffer buffer(*this, *memory);
    const Access all{*memory, 0, bytes, kDiscard, {}, 0};
    ViewRecord view;
    const Status held = acquire_through_mover({&all, 1}, Timeout::seconds(5), {&view, 1});
    if (!held.ok()) {
      log_warn("gather: no row cache: {}", held.message());
      return;
    }
    HeldViews views(residency, {&view, 1});
    row_cache_.emplace(std::span(static_cast<std::byte*>(view.data), bytes));
    views.keep();  // Held until the context ends.
    (void)buffer.keep();
  });
  return row_cache_.has_value() ? &*row_cache_ : nullptr;
}

bool GatherCall::guess(const Piece& piece, std::byte* to) {
  if (cache_ == nullptr) {
    return false;
  }
  Guess guess{piece, {}};
  const RowCache::Key key{rows_.buffer, piece.from, piece.length};
  if (!cache_->find(key, to + piece.to, guess.block)) {
    return false;
  }
  guesses_.push_back(guess);
  return true;
}

// One request confirms all guesses without reading. A piece that is not confirmed is read like any
// other.
Status GatherCall::confirm() {
  std::sort(guesses_.begin(), guesses_.end(),
            [](const Guess& a, const Guess& b) { return a.piece.from < b.piece.from; });
  const std::uint64_t extent = std::uint64_t{1} << span_.shift;
  Vector<GatherRead> reads;
  reads.reserve(guesses_.size());
  for (Guess& guess : guesses_) {
    const std::uint64_t at = guess.piece.from & (extent - 1);
    reads.push_back({.ref = ref_of(guess.piece),
                     .offset = static_cast<std::uint32_t>(at / unit_ * unit_),
                     .length = static_cast<std::uint32_t>(unit_),
                     .sums = &guess.block});
  }
  GatherList list{.reads = reads, .into = 0, .known = true};
  PostedRequest posted(impl_);
  post(posted, list);
  posted.await();
  if (!posted.request.status.ok()) {
    return std::move(posted.request.status);
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].found != GatherRead::Found::known) {
      pieces_.push_back(guesses_[i].piece);
    }
  }
  guesses_.clear();
  return {};
}

// ---- Reads -------------------------------------------------------------------------------------

// Reads into `range` of another buffer, or to memory. Leaves the pieces that it cannot read in
// rest_.
Status GatherCall::read_below(const Access& range, std::byte* to) {
  const std::uint64_t most = impl_.most_staging();
  // An upper bound for all reads: no piece needs more blocks than these, or more between it and the
  // next.
  const std::uint64_t piece = std::min(rows_.row_bytes, std::uint64_t{1} << span_.shift);
  const std::uint64_t one = round_up(piece, unit_) + unit_;
  const std::uint64_t all = std::bit_ceil((one + impl_.config.gather_gap) * pieces_.size());
  const std::uint64_t bytes = std::min(most, all < most / kSegments ? all * kSegments : most);
  segment_bytes_ = bytes / kSegments;
  if (segment_bytes_ < one) {
    rest_ = pieces_;
    return {};
  }
  const Result<Handle> staging = impl_.alloc_staging(bytes);
  if (!staging.ok()) {
    return staging.status().clone();
  }
  const HeldBuffer buffer(impl_, *staging);
  const std::array<Access, 2> list = {Access{*staging, 0, bytes, kDiscard, {}, 0}, range};
  std::array<ViewRecord, 2> views;
  const std::size_t n = to == nullptr ? 2 : 1;
  Status status = acquire({list.data(), n}, {views.data(), n});
  if (status.ok()) {
    const HeldViews held(impl_.residency, {views.data(), n});
    into_ = impl_.residency.buffers.at(Buffers::index_of(*staging))
                .first.load(std::memory_order_relaxed);
    status = stream(static_cast<std::byte*>(views[0].data),
                    to != nullptr ? to : static_cast<std::byte*>(views[1].data));
  }
  return status;
}

Status GatherCall::stream(std::byte* data, std::byte* to) {
  std::array<Segment, kSegments> segments;
  cursor_ = 0;
  for (unsigned i = 0; i < kSegments; ++i) {
    segments[i].data = data + i * segment_bytes_;
    post(segments[i]);
  }
  Status status;
  for (unsigned i = 0; segments[i].posted.has_value(); i = (i + 1) % kSegments) {
    Segment& segment = segments[i];
    segment.posted->await();
    Status taken = status.ok() ? take(segment, to) : Status();
    segment.posted.reset();
    if (!taken.ok()) {
      status = std::move(taken);
      for (Segment& other : segments) {
        if (other.posted.has_value()) {
          other.posted->cancel();
        }
      }
      impl_.note_cancel();
    }
    if (status.ok()) {
      post(segment);
    }
  }
  return status;
}

// Plans reads for the next pieces, as many as fit into the segment, and posts them.
void GatherCall::post(Segment& segment) {
  if (cursor_ == pieces_.size()) {
    return;
  }
  segment.reads.clear();
  segment.first_piece.clear();
  segment.sums.resize(segment_bytes_ / kSmallestExtent);
  const std::uint64_t extent = std::uint64_t{1} << span_.shift;
  const std::uint64_t gap = impl_.config.gather_gap;
  std::uint64_t used = 0;
  for (; cursor_ < pieces_.size(); ++cursor_) {
    const Piece& piece = pieces_[cursor_];
    const ExtentRef ref = ref_of(piece);
    const std::uint64_t at = piece.from & (extent - 1);
    const std::uint64_t begin = at / unit_ * unit_;
    const std::uint64_t end = round_up(at + piece.length, unit_);
    GatherRead* const last = segment.reads.empty() ? nullptr : &segment.reads.back();
    const std::uint64_t so_far =
        last != nullptr && last->ref == ref ? last->offset + std::uint64_t{last->length} : 0;
    if (so_far != 0 && begin <= so_far + gap &&
        std::max(end, so_far) - last->offset <= std::max<std::uint64_t>(kMostRead, 2 * unit_)) {
      const std::uint64_t more = std::max(end, so_far) - so_far;
      if (used + more > segment_bytes_) {
        break;
      }
      last->length += static_cast<std::uint32_t>(more);
      last->rows += piece.length;
      used += more;
      continue;
    }
    if (used + (end - begin) > segment_bytes_) {
      break;
    }
    segment.reads.push_back({.ref = ref,
                             .offset = static_cast<std::uint32_t>(begin),
                             .length = static_cast<std::uint32_t>(end - begin),
                             .data = segment.data + used,
                             .rows = piece.length,
                             .sums = segment.sums.data() + used / kSmallestExtent});
    segment.first_piece.push_back(cursor_);
    used += end - begin;
  }
  segment.first_piece.push_back(cursor_);
  segment.list = {.reads = segment.reads, .into = into_};
  post(segment.posted.emplace(impl_), segment.list);
}

void GatherCall::post(PostedRequest& posted, GatherList& list) {
  Request& request = posted.request;
  request.kind = RequestKind::gather;
  request.spans = {span_};
  request.gather = &list;
  request.deadline_ns = limits_.deadline_ns;
  request.cancel_with = limits_.cancel;
  posted.post();
}

ExtentRef GatherCall::ref_of(const Piece& piece) const {
  return span_.first +
         static_cast<ExtentRef>((piece.from >> span_.shift) - (span_.offset >> span_.shift));
}

// Copies the rows of a finished segment. Checks a block once, and only if it contains a row.
Status GatherCall::take(Segment& segment, std::byte* to) {
  for (std::size_t i = 0; i < segment.reads.size(); ++i) {
    const GatherRead& read = segment.reads[i];
    const std::size_t first = segment.first_piece[i];
    if (read.found == GatherRead::Found::failed) {
      return at_row(row_of(pieces_[first]), segment.posted->request.status);
    }
  }
  if (!segment.posted->request.status.ok()) {
    return segment.posted->request.status.clone();
  }
  const std::uint64_t mask = (std::uint64_t{1} << span_.shift) - 1;
  for (std::size_t i = 0; i < segment.reads.size(); ++i) {
    const GatherRead& read = segment.reads[i];
    std::uint64_t checked = 0, bad = ~std::uint64_t{0};  // Blocks of the read; the last bad one.
    for (std::size_t p = segment.first_piece[i]; p < segment.first_piece[i + 1]; ++p) {
      const Piece& piece = pieces_[p];
      if (read.found == GatherRead::Found::zeros) {
        std::memset(to + piece.to, 0, piece.length);
        continue;
      }
      const std::uint64_t at = (piece.from & mask) - read.offset;
      bool good = read.found == GatherRead::Found::bytes;
      if (good && read.sum_bytes != 0) {
        const std::uint64_t begin = at / read.sum_bytes;
        const std::uint64_t end = (at + piece.length - 1) / read.sum_bytes + 1;
        good = bad == ~std::uint64_t{0} || begin > bad;
        for (std::uint64_t b = std::max(begin, checked); b < end; ++b) {
          if (Checksums::hash(read.data + b * read.sum_bytes, read.sum_bytes) != read.sums[b]) {
            bad = b;
            good = false;
          }
        }
        checked = std::max(checked, end);
      }
      if (good) {
        std::memcpy(to + piece.to, read.data + at, piece.length);
        offer(read, at, piece);
      } else {
        rest_.push_back(piece);  // Acquiring a view reports the error, if there is one.
      }
    }
  }
  return {};
}

// Offers a checked row to the cache, for the next call. Only rows within one block.
void GatherCall::offer(const GatherRead& read, std::uint64_t at, const Piece& piece) {
  if (cache_ == nullptr || read.sum_bytes != unit_ ||
      at / unit_ != (at + piece.length - 1) / unit_) {
    return;
  }
  cache_->offer({rows_.buffer, piece.from, piece.length}, read.sums[at / unit_], read.data + at);
}

// Copies the pieces that begin in one extent, starting at rest_[i].
Status GatherCall::view_some(std::size_t& i, std::byte* to) {
  const Piece& first = rest_[i];
  const Access access = extent_of(first.from, kRead);
  ViewRecord view;
  Status status = acquire({&access, 1}, {&view, 1});
  if (!status.ok()) {
    return at_row(row_of(first), status);
  }
  const HeldViews held(impl_.residency, {&view, 1});
  const std::uint64_t extent = first.from >> span_.shift;
  for (; i < rest_.size() && rest_[i].from >> span_.shift == extent; ++i) {
    const Piece& piece = rest_[i];
    std::memcpy(
        to + piece.to,
        static_cast<const std::byte*>(view.data) + (piece.from - span_.offset - access.offset),
        piece.length);
  }
  return {};
}

Status GatherCall::view_one(const Piece& piece, const Access& range) {
  const std::array<Access, 2> list = {
      Access{rows_.buffer, piece.from - span_.offset, piece.length, kRead, {}, 0},
      Access{range.buffer, range.offset + piece.to, piece.length, kWrite, {}, 0}};
  std::array<ViewRecord, 2> views;
  Status status = acquire(list, views);
  if (!status.ok()) {
    return at_row(row_of(piece), status);
  }
  const HeldViews held(impl_.residency, views);
  std::memmove(views[1].data, views[0].data, piece.length);
  return {};
}

}  // namespace tiermem

// Scatter: overwrites rows of one buffer from memory of the program. It works extent by extent,
// brings each in once, and prefetches the next ones. Within an extent it keeps the order of the
// list, so that of overlapping rows the last one stays. Any thread.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "runtime/gather.hpp"

namespace tiermem {

Status ScatterCall::check(const Rows& rows) {
  Status status = RowCall::check(rows);
  if (!status.ok() || rows_.count == 0) {
    return status;
  }
  if (from_ == nullptr) {
    return fail(Code::invalid_argument,
                "{}: the memory to copy from is null; pass memory of {} bytes", call_,
                rows_.count * rows_.row_bytes);
  }
  if (rows_.count > ~std::uint64_t{0} / kMostRow) {
    return fail(Code::invalid_argument, "{}: {} rows; accepted are at most {}", call_, rows_.count,
                ~std::uint64_t{0} / kMostRow);
  }
  status = check_memory(from_, rows_.count * rows_.row_bytes, "the memory to copy from");
  return status.ok()
             ? check_memory(rows_.index, rows_.count * sizeof(*rows_.index), "the list of rows")
             : std::move(status);
}

Status ScatterCall::run() {
  Status status;
  for (std::uint64_t n = 0; first_ < rows_.count && status.ok(); first_ += n) {
    n = std::min(rows_at_once(), rows_.count - first_);
    pieces_.clear();
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto add = [&](std::uint64_t from, std::uint64_t done, std::uint32_t length) {
        pieces_.push_back({from, i * rows_.row_bytes + done, length});
      };
      if (!each_piece(first_ + i, add)) [[unlikely]] {
        return not_inside(first_ + i);
      }
    }
    group();
    const std::byte* const from = from_ + first_ * rows_.row_bytes;
    for (std::size_t at = 0; at < groups_.size() && status.ok(); ++at) {
      prefetch(at);
      status = write(groups_[at], from);
    }
  }
  return status;
}

void ScatterCall::group() {
  const auto extent = [&](const Piece& piece) { return piece.from >> span_.shift; };
  const auto less = [&](const Piece& a, const Piece& b) { return extent(a) < extent(b); };
  if (!std::is_sorted(pieces_.begin(), pieces_.end(), less)) {
    std::stable_sort(pieces_.begin(), pieces_.end(), less);
  }
  groups_.clear();
  asked_ = 0;
  for (std::size_t i = 0; i < pieces_.size();) {
    Group group{i, i, extent_of(pieces_[i].from, kWrite)};
    const std::uint64_t end = group.access.offset + group.access.length;
    std::uint64_t covered = group.access.offset;
    for (; i < pieces_.size() && extent(pieces_[i]) == extent(pieces_[group.first]); ++i) {
      const std::uint64_t begin = pieces_[i].from - span_.offset;
      covered = begin <= covered ? std::max(covered, begin + pieces_[i].length) : covered;
    }
    group.end = i;
    group.access.mode = covered == end ? kDiscard : kWrite;  // Rows in order may cover the extent.
    groups_.push_back(group);
  }
}

// Enough for a device to work well, but not enough to evict the first extents.
void ScatterCall::prefetch(std::size_t at) {
  const std::uint64_t most = impl_.config.dram.budget / 8 >> span_.shift;
  const auto ahead = static_cast<std::size_t>(std::clamp<std::uint64_t>(most, 1, 32));
  if (limits_.never_waits || asked_ >= std::min(groups_.size(), at + 1 + ahead / 2)) {
    return;
  }
  auto request = std::make_unique<Request>();
  request->kind = RequestKind::prefetch;
  for (asked_ = std::max(asked_, at + 1); asked_ < std::min(groups_.size(), at + 1 + ahead);
       ++asked_) {
    Access access = groups_[asked_].access;
    Span span;
    if (access.mode == kDiscard) {
      continue;
    }
    access.mode = kRead;
    if (impl_.residency.resolve_quietly(access, span) == Code::ok &&
        !impl_.residency.extents.word(kHost, span.first).load().view_readable()) {
      request->spans.push_back(span);
    }
  }
  if (!request->spans.empty()) {
    impl_.ask_and_forget(std::move(request));
  }
}

Status ScatterCall::write(const Group& group, const std::byte* from) {
  ViewRecord view;
  Status status = acquire({&group.access, 1}, {&view, 1});
  if (!status.ok()) {
    return at_row(row_of(pieces_[group.first]), status);
  }
  const HeldViews held(impl_.residency, {&view, 1});
  auto* const data = static_cast<std::byte*>(view.data);
  for (std::size_t i = group.first; i < group.end; ++i) {
    const Piece& piece = pieces_[i];
    std::memcpy(data + (piece.from - span_.offset - group.access.offset), from + piece.to,
                piece.length);
  }
  return {};
}

}  // namespace tiermem

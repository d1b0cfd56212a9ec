// One call of gather or scatter: its checked list of rows and its progress. One thread creates and
// uses it: the caller's or the thread of errands.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "runtime/call_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/errands.hpp"
#include "runtime/held.hpp"

namespace tiermem {

/// The common part of gather and scatter.
class RowCall : public Errand {
 public:
  static constexpr std::uint64_t kMostRow = 64 << 10;
  /// Maximum pieces that are sorted at once: 3 MiB.
  static constexpr std::uint64_t kMostPieces = 1 << 17;

  /// `cancel`: null, or a flag that is set to end the call.
  RowCall(Context::Impl& impl, const char* call, std::uint32_t mode, Timeout timeout,
          const std::atomic<bool>* cancel)
      : impl_(impl), call_(call), mode_(mode), limits_(CallLimits::of(timeout, cancel)) {}

  std::int64_t deadline() const noexcept override { return limits_.deadline_to_begin(); }
  /// Call it first. Errors: invalid_argument naming the row, stale_handle, shut_down.
  virtual Status check(const Rows& rows);

 protected:
  /// The part of a row in one extent.
  struct Piece {
    std::uint64_t from;  // Offset in the buffer's window.
    std::uint64_t to;    // Offset from the first row of the batch in the program's memory.
    std::uint32_t length;
  };

  /// Returns where the row begins in the window. Reads the index once and checks that value,
  /// because the program may change its list during the call. kNowhere: the row is not inside the
  /// buffer.
  std::uint64_t in_window(std::uint64_t row) const {
    const std::uint64_t number = read_once(rows_.index[row]);
    return number <= last_ ? span_.offset + rows_.offset + number * rows_.stride : kNowhere;
  }
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  Status not_inside(std::uint64_t row) const;
  /// Refuses rows with bytes in [begin, end) of the window; `what` names that range in the error.
  Status check_apart(std::uint64_t begin, std::uint64_t end, const char* what) const;
  /// The same for memory of the program, which may be in a view or mapped window of the buffer.
  Status check_memory(const void* memory, std::uint64_t bytes, const char* what) const;
  /// Checks that the rows' memory does not overlap the list of rows.
  Status check_list(const void* memory, const char* what) const;
  /// Rows in a batch: their pieces number at most kMostPieces.
  std::uint64_t rows_at_once() const;
  /// The part of the buffer in the extent of this byte.
  Access extent_of(std::uint64_t in_window, std::uint32_t mode) const;
  /// Calls each(from, done, length) for each piece of the row; `done` bytes of the row precede it.
  /// Returns false, without a call, if the row is not inside the buffer.
  template <typename Each>
  bool each_piece(std::uint64_t row, Each&& each) const {
    const std::uint64_t mask = (std::uint64_t{1} << span_.shift) - 1;
    const std::uint64_t from = in_window(row);
    if (from == kNowhere) [[unlikely]] {
      return false;
    }
    for (std::uint64_t done = 0; done < rows_.row_bytes;) {
      const std::uint64_t in_extent = mask + 1 - ((from + done) & mask);
      const std::uint64_t length = std::min(rows_.row_bytes - done, in_extent);
      each(from + done, done, static_cast<std::uint32_t>(length));
      done += length;
    }
    return true;
  }
  Status acquire(std::span<const Access> list, std::span<ViewRecord> views) {
    return impl_.acquire_within(call_, list, limits_, views);
  }
  std::uint64_t row_of(const Piece& piece) const { return first_ + piece.to / rows_.row_bytes; }
  Status at_row(std::uint64_t row, const Status& why) const;

  Context::Impl& impl_;
  const char* const call_;
  const std::uint32_t mode_;
  const CallLimits limits_;
  Rows rows_;
  Span span_;                // The whole buffer.
  std::uint64_t last_ = 0;   // The highest valid row number; meaningful only if there are rows.
  std::uint64_t first_ = 0;  // First row of the batch.
  Vector<Piece> pieces_;
};

class GatherCall : public RowCall {
 public:
  /// Copies into memory.
  GatherCall(Context::Impl& impl, std::byte* to, Timeout timeout, const std::atomic<bool>* cancel)
      : RowCall(impl, "gather", kRead, timeout, cancel), to_(to) {}
  /// Copies into a buffer.
  GatherCall(Context::Impl& impl, Handle into, std::uint64_t offset, Timeout timeout,
             const std::atomic<bool>* cancel)
      : RowCall(impl, "gather", kRead, timeout, cancel), into_buffer_(into), into_offset_(offset) {}

  Status check(const Rows& rows) override;
  Status run() override;

 private:
  Status to_memory();
  Status to_buffer();
  /// Maximum bytes of one request: a larger one is no faster, and two requests finish sooner.
  static constexpr std::uint64_t kMostRead = 128 << 10;

  struct Segment;
  /// A row copied from the cache to its destination. It is valid if the slot still has its block.
  struct Guess {
    Piece piece;
    Checksums::Hash block;
  };
  bool guess(const Piece& piece, std::byte* to);
  Status confirm();
  void sort_pieces();
  ExtentRef ref_of(const Piece& piece) const;
  void offer(const GatherRead& read, std::uint64_t at, const Piece& piece);
  void post(PostedRequest& posted, GatherList& list);
  Status begin(std::uint64_t first, std::uint64_t n, std::byte* to);
  Status read_below(const Access& range, std::byte* to);
  Status stream(std::byte* data, std::byte* to);
  void post(Segment& segment);
  Status take(Segment& segment, std::byte* to);
  Status view_some(std::size_t& i, std::byte* to);
  Status view_one(const Piece& piece, const Access& range);

  std::byte* const to_ = nullptr;
  const Handle into_buffer_ = 0;
  const std::uint64_t into_offset_ = 0;
  Vector<Piece> rest_;     // The pieces that need views.
  Vector<Guess> guesses_;  // Separate from pieces_.
  RowCache* cache_ = nullptr;
  std::size_t cursor_ = 0;  // Index into pieces_: the first that has not been requested.
  std::uint64_t unit_ = 0;  // Minimum bytes of a read.
  std::uint64_t segment_bytes_ = 0;
  ExtentRef into_ = 0;
};

class ScatterCall : public RowCall {
 public:
  ScatterCall(Context::Impl& impl, const std::byte* from, Timeout timeout,
              const std::atomic<bool>* cancel)
      : RowCall(impl, "scatter", kWrite, timeout, cancel), from_(from) {}

  Status check(const Rows& rows) override;
  Status run() override;

 private:
  /// Pieces of one extent, in the order of the list.
  struct Group {
    std::size_t first, end;
    Access access;
  };
  void group();
  void prefetch(std::size_t at);
  Status write(const Group& group, const std::byte* from);

  const std::byte* const from_;
  Vector<Group> groups_;
  std::size_t asked_ = 0;  // Index into groups_: those before it are resident or requested.
};

}  // namespace tiermem

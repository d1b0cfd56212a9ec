// One call of gather or scatter: a list of rows, checked, and what has become of it so far. Made
// and used by one thread, which is the caller's or that of operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/errands.hpp"
#include "runtime/held.hpp"

namespace tiermem {

/// What both have in common.
class RowCall : public Errand {
 public:
  static constexpr std::uint64_t kMostRow = 64 << 10;
  /// Pieces that are sorted at once: 3 MiB of them.
  static constexpr std::uint64_t kMostPieces = 1 << 17;

  /// `cancel`: null, or set by whoever wants the call to end.
  RowCall(Context::Impl& impl, const char* call, std::uint32_t mode, Timeout timeout,
          const std::atomic<bool>* cancel)
      : impl_(impl),
        call_(call),
        mode_(mode),
        timeout_(timeout),
        deadline_ns_(deadline_of(timeout)),
        cancel_(cancel) {}

  /// Before anything else. Errors: invalid_argument naming the row, stale_handle, shut_down.
  virtual Status check(const Rows& rows);

 protected:
  /// What of a row lies in one extent.
  struct Piece {
    std::uint64_t from;  // In the buffer's window.
    std::uint64_t to;    // From the first row of the batch on, in the program's memory.
    std::uint32_t length;
  };

  /// Where the row begins in the window. The index is read once, and checked after that: the
  /// program may change its list during the call. kNowhere: the row is not inside the buffer.
  std::uint64_t in_window(std::uint64_t row) const {
    const std::uint64_t number = read_once(rows_.index[row]);
    return number <= last_ ? span_.offset + rows_.offset + number * rows_.stride : kNowhere;
  }
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  Status not_inside(std::uint64_t row) const;
  /// Refuses rows of which bytes lie in [begin, end) of the window, `what` of the call.
  Status check_apart(std::uint64_t begin, std::uint64_t end, const char* what) const;
  /// The same for memory of the program, which may be a view or a mapped window of the buffer.
  Status check_memory(const void* memory, std::uint64_t bytes, const char* what) const;
  /// The memory that rows go to or come from does not contain the list of rows.
  Status check_list(const void* memory, const char* what) const;
  /// Rows of a batch: they have no more than kMostPieces.
  std::uint64_t rows_at_once() const;
  /// The extent of this byte, as far as the buffer is in it.
  Access extent_of(std::uint64_t in_window, std::uint32_t mode) const;
  /// Calls each(from, done, length) for each piece of the row, `done` bytes of it behind. False:
  /// the row is not inside the buffer, and nothing was called.
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
  bool cancelled() const { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }
  Timeout left() const;
  Status acquire(std::span<const Access> list, std::span<ViewRecord> views);
  std::uint64_t row_of(const Piece& piece) const { return first_ + piece.to / rows_.row_bytes; }
  Status at_row(std::uint64_t row, const Status& why) const;

  Context::Impl& impl_;
  const char* const call_;
  const std::uint32_t mode_;
  const Timeout timeout_;
  const std::int64_t deadline_ns_;
  const std::atomic<bool>* const cancel_;
  Rows rows_;
  Span span_;                // All of the buffer.
  std::uint64_t last_ = 0;   // The highest number of a row; meaningful with rows only.
  std::uint64_t first_ = 0;  // Row of the batch.
  Vector<Piece> pieces_;
};

class GatherCall : public RowCall {
 public:
  /// Into memory.
  GatherCall(Context::Impl& impl, std::byte* to, Timeout timeout, const std::atomic<bool>* cancel)
      : RowCall(impl, "gather", kRead, timeout, cancel), to_(to) {}
  /// Into a buffer.
  GatherCall(Context::Impl& impl, Handle into, std::uint64_t offset, Timeout timeout,
             const std::atomic<bool>* cancel)
      : RowCall(impl, "gather", kRead, timeout, cancel), into_buffer_(into), into_offset_(offset) {}

  Status check(const Rows& rows) override;
  Status run() override;

 private:
  Status to_memory();
  Status to_buffer();
  /// Most that is read by one request: more is no faster, and is read sooner in two.
  static constexpr std::uint64_t kMostRead = 128 << 10;

  struct Segment;
  /// A row that the cache had, already copied to where it goes, if the slot still has its block.
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
  Vector<Piece> rest_;     // Of pieces_: to be had by views only.
  Vector<Guess> guesses_;  // Not among pieces_.
  RowCache* cache_ = nullptr;
  std::size_t cursor_ = 0;  // Of pieces_: the first that was not asked for.
  std::uint64_t unit_ = 0;  // What is read at least.
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
  std::size_t asked_ = 0;  // Of groups_: those before are there, or were asked for.
};

}  // namespace tiermem

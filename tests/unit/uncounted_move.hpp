// Rare behaviours of UFFDIO_MOVE, for the thread that creates these objects. Defined in
// userfault_test.cpp, which replaces ioctl.
#pragma once

namespace tiermem {

/// Some pages are moved but not counted. Linux 6.18 does this when a page table entry changes
/// during the move.
class UncountedMove {
 public:
  /// The next move moves and counts `counted` pages, and moves `uncounted` pages without counting
  /// them.
  UncountedMove(unsigned counted, unsigned uncounted);
  ~UncountedMove();
  UncountedMove(const UncountedMove&) = delete;
  UncountedMove& operator=(const UncountedMove&) = delete;

  /// Returns whether such a move has happened.
  bool happened() const;
};

/// The next `busy` moves find a page that compaction is about to take, and fail with EBUSY. Before
/// that, `again` moves fail with EAGAIN.
class BusyMoves {
 public:
  explicit BusyMoves(unsigned busy, unsigned again = 0);
  ~BusyMoves();
  BusyMoves(const BusyMoves&) = delete;
  BusyMoves& operator=(const BusyMoves&) = delete;
};

}  // namespace tiermem

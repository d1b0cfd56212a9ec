// What UFFDIO_MOVE does rarely, of the thread that made it; defined in userfault_test.cpp, where
// ioctl is ours.
#pragma once

namespace tiermem {

/// Pages are moved and not counted, as by Linux 6.18 when a page table entry changes under it.
class UncountedMove {
 public:
  /// Of the next move so many pages are counted, and so many of the following ones are moved only.
  UncountedMove(unsigned counted, unsigned uncounted);
  ~UncountedMove();
  UncountedMove(const UncountedMove&) = delete;
  UncountedMove& operator=(const UncountedMove&) = delete;

  /// It has happened.
  bool happened() const;
};

/// The next so many moves find a page that compaction is about to take: EBUSY, and EAGAIN before.
class BusyMoves {
 public:
  explicit BusyMoves(unsigned busy, unsigned again = 0);
  ~BusyMoves();
  BusyMoves(const BusyMoves&) = delete;
  BusyMoves& operator=(const BusyMoves&) = delete;
};

}  // namespace tiermem

// A kernel that moves pages by UFFDIO_MOVE and does not count them, as Linux 6.18 does when a page
// table entry changes under it. Of the thread that made it; defined in userfault_test.cpp, where
// ioctl is ours.
#pragma once

namespace tiermem {

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

}  // namespace tiermem

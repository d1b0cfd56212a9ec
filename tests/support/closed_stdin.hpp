// A process without descriptor 0, as some daemons start their programs: the next descriptor that
// the process opens has the number 0. For tests with one thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace tiermem::test {

/// Closes descriptor 0 for the lifetime of the object.
class ClosedStdin {
 public:
  ClosedStdin() : saved_(::fcntl(0, F_DUPFD_CLOEXEC, 3)) { ::close(0); }
  ~ClosedStdin() {
    if (saved_ >= 0) {
      ::dup2(saved_, 0);
      ::close(saved_);
    }
  }
  ClosedStdin(const ClosedStdin&) = delete;
  ClosedStdin& operator=(const ClosedStdin&) = delete;

  /// Returns whether a descriptor has the number 0 now.
  static bool is_taken() { return ::fcntl(0, F_GETFD) >= 0; }

 private:
  int saved_;
};

}  // namespace tiermem::test

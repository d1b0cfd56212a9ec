// Touches of closed memory (PROT_NONE), seen without userfaultfd: a handler of SIGSEGV tells them
// by a pipe and lets the toucher sleep until it is woken; then the touch is made again. For
// programs that are linked with tiermem: the handler is the process's, and a program that sets its
// own later must call the one it found.
//
// Threads: create, add and the end are for any; one thread at a time reads; wake is for any. The
// handler takes no lock, allocates nothing, and keeps errno. A system call that touches closed
// memory gets EFAULT: no signal is raised for the kernel. In a forked child every touch goes to the
// handler that was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tiermem/status.hpp"

namespace tiermem {

struct UserfaultEvent;

class TouchTrap {
 public:
  /// no_capacity: too many at the same time, or no descriptors.
  static Result<std::unique_ptr<TouchTrap>> create();
  /// All ranges are forgotten, and who sleeps touches again.
  ~TouchTrap();
  TouchTrap(const TouchTrap&) = delete;
  TouchTrap& operator=(const TouchTrap&) = delete;

  /// Touches of the range are told from now on. The first range of the process sets the handler.
  /// no_capacity: too many ranges.
  Status add(const std::byte* address, std::uint64_t bytes);

  /// Readable while touches wait.
  int fd() const;
  /// 0 with a touch, EAGAIN when none waits, else errno.
  int read_event(UserfaultEvent& event) const;
  /// Who sleeps for the page touches again; others may, too.
  void wake(const std::byte* page);

  struct Slot;  // For the handler.

 private:
  explicit TouchTrap(Slot& slot) : slot_(slot) {}

  Slot& slot_;
};

}  // namespace tiermem

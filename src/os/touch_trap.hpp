// Detection of touches of closed memory (PROT_NONE) without userfaultfd. A SIGSEGV handler reports
// each touch through a pipe, and the touching thread sleeps until it is woken; then it repeats the
// touch. This is for programs that are linked with tiermem. The handler is process-wide, and a
// handler that the program installs later must call the previous one.
//
// Threads: any thread may create, add and destroy; one thread at a time reads; any thread may wake.
// The handler takes no lock, allocates nothing, and preserves errno. A system call that touches
// closed memory gets EFAULT, because the kernel raises no signal for it. In a forked child every
// touch goes to the previous handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tiermem/status.hpp"

namespace tiermem {

struct UserfaultEvent;

class TouchTrap {
 public:
  /// Errors: no_capacity: too many traps at the same time, or no descriptors.
  static Result<std::unique_ptr<TouchTrap>> create();
  /// Forgets all ranges; sleeping threads repeat their touch.
  ~TouchTrap();
  TouchTrap(const TouchTrap&) = delete;
  TouchTrap& operator=(const TouchTrap&) = delete;

  /// Reports touches of the range from now on. The first range of the process installs the handler.
  /// Errors: no_capacity: too many ranges.
  Status add(const std::byte* address, std::uint64_t bytes);

  /// Readable while touches wait.
  int fd() const;
  /// Returns 0 with a touch, EAGAIN if none waits, else errno.
  int read_event(UserfaultEvent& event) const;
  /// Lets threads that sleep for the page repeat their touch; other threads may repeat theirs too.
  void wake(const std::byte* page);

  struct Slot;  // Used by the handler.

 private:
  explicit TouchTrap(Slot& slot) : slot_(slot) {}

  Slot& slot_;
};

}  // namespace tiermem

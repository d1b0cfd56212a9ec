// Detection of touches by signals. This is for programs that are linked with tiermem. There are two
// kinds of traps.
//
//   closed      Memory is closed (PROT_NONE), without userfaultfd: a touch is SIGSEGV. The handler
//               reports it through a pipe.
//   registered  Memory is registered with a userfaultfd that answers touches with SIGBUS: the
//               touching thread calls a function that begins the answer, and may do it itself.
//
// Then the touching thread sleeps until it is woken, and repeats the touch. The handlers are
// process-wide, and a handler that the program installs later must call the previous one.
//
// Threads: any thread may create, add and destroy; one thread at a time reads; any thread may wake.
// The handler preserves errno. Its own code takes no lock and allocates nothing; the function of a
// registered trap may, because no signal interrupts it, and because no thread touches such memory
// while it holds a lock of tiermem's. A system call that touches absent memory gets EFAULT, as the
// kernel raises no signal for it. In a forked child every touch goes to the previous handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tiermem/status.hpp"

namespace tiermem {

struct UserfaultEvent;

class TouchTrap {
 public:
  enum class Kind : std::uint8_t { closed, registered };

  /// Errors: no_capacity: too many traps at the same time, or no descriptors. unsupported: the
  /// processor does not tell a handler whether a touch of registered memory writes.
  static Result<std::unique_ptr<TouchTrap>> create(Kind kind = Kind::closed);
  /// Forgets all ranges; sleeping threads repeat their touch.
  ~TouchTrap();
  TouchTrap(const TouchTrap&) = delete;
  TouchTrap& operator=(const TouchTrap&) = delete;

  /// Reports touches of the range from now on. The first range of the process installs the handler.
  /// Errors: no_capacity: too many ranges.
  Status add(const std::byte* address, std::uint64_t bytes);
  /// Touches of its ranges are no longer its own: call it before other memory may get these
  /// addresses.
  void forget_ranges();

  /// Called in the touching thread, with all signals blocked. It causes a later wake(), or has
  /// called it. Returns false if the touch is a mistake: the previous handler gets the signal.
  using Answer = bool (*)(void* argument, const UserfaultEvent& touch);
  /// For a registered trap. Null: touches go to the previous handler; returns when no thread is in
  /// the function before.
  void answer_by(Answer answer, void* argument);

  /// Readable while touches of a closed trap wait.
  int fd() const;
  /// Returns 0 with a touch, EAGAIN if none waits, else errno.
  int read_event(UserfaultEvent& event) const;
  /// Lets threads that sleep for the page repeat their touch; other threads may repeat theirs too.
  void wake(const std::byte* page);

  // [the forking thread] No thread creates a trap or adds a range during the fork.
  static void before_fork();
  static void after_fork();

  struct Slot;  // Used by the handler.

 private:
  explicit TouchTrap(Slot& slot) : slot_(slot) {}

  Slot& slot_;
};

}  // namespace tiermem

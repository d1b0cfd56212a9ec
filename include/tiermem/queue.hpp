// A queue of operations: one descriptor that is readable while any of them has ended, and a call
// that returns those that have. For event loops with many operations in progress.
//
// Any thread may call any function, except that the destructor needs the queue for itself. No
// function throws.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tiermem/context.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// Operations of one context, until their ends are drained.
///
/// - Each operation that was added gives one event, also if it ended before, or was cancelled. An
///   operation has the room for its event, so no event is lost for want of memory.
/// - The mover never waits for a queue, whether it is drained or not.
/// - Events come in the order in which the operations ended or were added, whichever was later.
/// - End of the context: its operations end with shut_down. Once the context is destroyed, drain()
///   returns shut_down, the descriptor stays readable, and events that were not drained are gone.
/// - Fork: in a child, the calls return shut_down, and leave the parent's queue alone. With
///   fork=follow, the child has a queue of its own, with the same operations: those in progress end
///   with shut_down. Its descriptor has the same number and is another one, so an epoll set of the
///   child needs it again.
class TIERMEM_API Queue {
 public:
  /// The end of an operation.
  struct Event {
    OpHandle op = 0;       ///< Consumed: its handle is invalid.
    void* user = nullptr;  ///< As given to Queue::add().
    Status status;         ///< The result of the operation.
  };

  /// Creates an empty queue.
  ///
  /// - Errors: no_capacity: the process has no descriptor left. shut_down.
  static Result<std::unique_ptr<Queue>> create(Context& context);
  /// Waits until all its operations have ended, and drops their events. Cancel them first to wait
  /// less. Does not wait after close(), or once the context is destroyed.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Returns the descriptor for poll, epoll or io_uring, which the queue owns. It is readable,
  /// level triggered, while an event can be drained. Only drain() may read it. -1 in a child of
  /// fork that had no descriptor left.
  int fd() const noexcept;
  /// Adds an operation of the context. Its end is then reported by drain() alone: op_wait() and
  /// op_poll() refuse it; op_cancel() and op_fd() do not. Memory that the operation uses must stay
  /// valid until its event is drained.
  ///
  /// - `op`: releases its handle to the queue. After an error it is as before.
  /// - `user`: returned with the event, and not used otherwise.
  /// - Errors: invalid_argument: it has been waited for, is in a queue, or belongs to another
  ///   context. busy: another thread waits for it. shut_down.
  Status add(Op& op, void* user = nullptr);
  Status add(OpHandle op, void* user = nullptr);
  /// Moves up to events.size() events into `events`, and returns their number. Never waits. Several
  /// threads may drain at once: each event goes to one of them.
  ///
  /// - Errors: shut_down.
  Result<std::size_t> drain(std::span<Event> events);
  /// Ends the queue; further calls return shut_down. After an error it is as before.
  ///
  /// - Errors: busy: operations have not been drained; the message has their number.
  Status close();

  class TIERMEM_LOCAL Impl;

 private:
  TIERMEM_LOCAL explicit Queue(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tiermem

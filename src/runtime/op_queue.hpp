// A queue of operations that have ended, with one descriptor for all of them. It is a list through
// the operations themselves, so appending one allocates nothing and cannot fail.
//
//   the descriptor is readable  ==  the list is not empty, or the context has ended
//
// Threads: the mutex of the table of operations (ops.hpp) guards everything except `create` and
// `fd`. No function waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/arena.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class OpQueue : public InArena {
 public:
  /// The part of an operation that belongs to its queue.
  struct Link {
    OpQueue* queue = nullptr;  ///< Null: it is in none.
    void* user = nullptr;
    OpHandle op = 0;
    Link* next = nullptr;  ///< In the list, once the operation has ended.
  };

  /// Shared, because the context and the owner of the queue may end in either order, also at the
  /// same time. Errors: no_capacity: the process has no descriptor left.
  static Result<std::shared_ptr<OpQueue>> create();
  ~OpQueue();
  OpQueue(const OpQueue&) = delete;
  OpQueue& operator=(const OpQueue&) = delete;

  /// Constant, except in a child of fork that found no descriptor: -1.
  int fd() const noexcept { return fd_; }
  /// Returns the number of operations that were added and not taken.
  std::size_t held() const noexcept { return held_; }

  void add(Link& link, OpHandle op, void* user) noexcept;
  /// The operation of this link has ended.
  void push(Link& link) noexcept;
  /// Takes the operation that ended first; null: none has ended. It is then in no queue.
  Link* pop() noexcept;
  /// The context has ended: the descriptor stays readable.
  void end() noexcept;

  /// [child of fork, its only thread] The descriptor is the parent's, too: replaces it by one of
  /// this process, with the same number. Returns false if there is none: fd() is then -1.
  bool follow_fork() noexcept;
  /// Closes the descriptor: in a child of fork without the context, only its copy.
  void close() noexcept;

 private:
  explicit OpQueue(int fd) noexcept : fd_(fd) {}
  void signal() noexcept;

  int fd_;
  Link* first_ = nullptr;
  Link* last_ = nullptr;
  std::size_t held_ = 0;
  bool ended_ = false;
};

}  // namespace tiermem

// Operations under way: requests without a waiting caller. A handle is an index and a generation,
// like a buffer's; the generation has the context's tag above a count that never wraps. Any thread;
// one mutex, which is never held while waiting for the mover.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mover/request.hpp"
#include "residency/context_tag.hpp"
#include "runtime/op_queue.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class Ops {
 public:
  /// `tag`: the context's.
  explicit Ops(std::uint64_t tag) : tag_(tag) {}
  ~Ops();
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  static constexpr std::size_t kMost = 65536;

  /// Takes ownership of the request and sets its on_done and context. Returns 0 if kMost operations
  /// are under way.
  OpHandle add(std::unique_ptr<Request> request);
  Request* request_of(OpHandle op);
  /// Returns the operation's result and consumes the operation. Returns invalid_argument for an
  /// unknown handle, and `busy` if the operation is not done at the deadline. `deadline_ns` is a
  /// time of now_ns(); 0: do not wait.
  Status wait(OpHandle op, std::int64_t deadline_ns);
  /// Does wait() for the call that began the operation and does not return before its end. Returns
  /// the status as the call ended with it.
  Status wait_in_call(OpHandle op);
  /// Waits as wait() does, and keeps the operation. Returns ok once it is done, whatever its status
  /// is.
  Status await(OpHandle op, std::int64_t deadline_ns);
  enum class State { none, under_way, done };
  struct Outcome {
    State state = State::none;
    /// none: invalid_argument. under_way: busy. done: a copy of the operation's result.
    Status status;
  };
  /// Never waits. `call` begins the message of an error.
  Outcome look(const char* call, OpHandle op) const;
  /// Consumes an operation that is done, and returns its result. Returns nothing for an operation
  /// that is unknown, under way, or waited for by another thread.
  std::optional<Status> consume(OpHandle op);
  /// Returns a new descriptor that becomes readable once the operation is done; the caller owns it.
  /// Errors: invalid_argument; no_capacity if the process has no descriptor left.
  Result<int> descriptor(OpHandle op);
  // Queues. An operation in a queue is consumed by take_ended() only: wait(), await() and consume()
  // refuse it.
  /// The table refers to the queue until leave() or end_queues().
  void enter(std::shared_ptr<OpQueue> queue);
  /// From now on the end of the operation goes to the queue; also if it has ended. Errors:
  /// invalid_argument: it is unknown, or in a queue already. busy: another thread waits for it.
  Status add_to(OpQueue& queue, OpHandle op, void* user);
  struct Ended {
    OpHandle op = 0;
    void* user = nullptr;
    Status status;
  };
  /// Takes the operation that ended first, and consumes it. Returns false if none has ended.
  bool take_ended(OpQueue& queue, Ended& ended);
  /// The queue ends. Returns 0, or the number of its operations: then it does not end.
  std::size_t leave(OpQueue& queue);
  /// The context ends, with all its operations.
  void end_queues();

  /// Marks it cancelled; false for an unknown handle.
  bool cancel(OpHandle op);
  std::size_t live() const;
  /// The invalid_argument error for a handle that context `tag` does not know. Names its owner if
  /// the handle's bits tell.
  static Status unknown(const char* call, OpHandle op, std::uint64_t tag);
  /// The `busy` error for an operation that another thread waits for.
  static Status waited_for(const char* call, OpHandle op);
  /// Unused entries begin with `lives` left.
  void test_leave_lives(std::uint64_t lives) noexcept { first_life_ = kLifeMask - lives; }

  /// [the forking thread] No thread is inside until after_fork().
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }
  /// [child of fork, its only thread] Nothing here reaches descriptors of the parent any more.
  void follow_fork();

 private:
  struct Entry : OpQueue::Link {
    std::unique_ptr<Request> request;
    std::atomic<std::uint32_t> done{0};
    std::uint64_t life = 1;
    bool claimed = false;  // A thread is consuming it.
    int event = -1;        // Made when a descriptor is first requested; callers get duplicates.
    Ops* table = nullptr;
  };
  // A handle: index + 1, life, tag.
  static constexpr unsigned kIndexBits = 17;
  static_assert(kMost < std::size_t{1} << kIndexBits);
  static constexpr unsigned kLifeBits = 64 - kIndexBits - ContextTag::kBits;
  static constexpr OpHandle kIndexMask = (OpHandle{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kLifeMask = (std::uint64_t{1} << kLifeBits) - 1;
  static std::uint32_t index_of(OpHandle op) noexcept {
    return static_cast<std::uint32_t>(op & kIndexMask) - 1;
  }
  OpHandle handle_of(std::uint32_t index, std::uint64_t life) const noexcept {
    return (tag_ << kLifeBits | life) << kIndexBits | (index + 1);
  }
  Entry* find(OpHandle op) const;
  Status claim(OpHandle op, std::int64_t deadline_ns, Entry*& claimed);
  Status take(OpHandle op, Entry& entry);
  static Status result_of(Status status);

  const std::uint64_t tag_;
  std::uint64_t first_life_ = 1;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::uint32_t> free_;
  Vector<std::shared_ptr<OpQueue>> queues_;
  std::size_t worn_ = 0;  // Entries with all lives used up; they are never reused.
};

}  // namespace tiermem

// Errands: calls that run as operations and need a thread that may wait. Threads take them in
// order. A thread starts when an errand finds none idle, up to a limit; all end with the context.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/arena.hpp"
#include "runtime/ops.hpp"

namespace tiermem {

class Errand : public InArena {
 public:
  virtual ~Errand() = default;
  virtual Status run() = 0;
  /// Called instead of run() if the operation was cancelled, or its time was over, before it began,
  /// and after a run() that threw: gives this code to each item, where each has a result.
  virtual void refuse(Code /*why*/) noexcept {}
  /// The time of now_ns() at which it ends if it has not begun.
  virtual std::int64_t deadline() const noexcept { return Request::kForever; }
};

class Errands {
 public:
  /// `most`: the max number of threads. With 1, errands run one after the other.
  explicit Errands(std::size_t most = 1) : most_(most) {}
  ~Errands() { stop(); }

  /// Any thread. The operation completes when the errand has ended; until it ends, the operation
  /// may cancel it through its request's flag. Errors: busy if there are too many operations;
  /// unavailable without a thread; shut_down.
  Result<OpHandle> send(Ops& ops, std::unique_ptr<Request> op, std::unique_ptr<Errand> errand);
  /// Any thread. Returns when all errands have ended: everything they wait for must end.
  void stop();
  /// Any thread. Ends those that were cancelled and have not begun.
  void end_cancelled();
  /// Any thread. Ends those that have not begun by their deadline. Returns the next deadline, or
  /// kForever: call it again then.
  std::int64_t end_late(std::int64_t now);

  /// [the forking thread] No thread begins or ends an errand until after_fork().
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }
  /// [child of fork, its only thread] Ends all operations with shut_down: their threads do not
  /// exist here. Call it instead of after_fork().
  void follow_fork();

 private:
  struct Sent {
    Request* op = nullptr;  // Owned by the operations until it ends.
    std::unique_ptr<Errand> errand;
  };
  void work();
  template <typename Which>
  void end_waiting(const Which& which, const char* why, Code code);
  void note_deadlines();

  const std::size_t most_;
  /// The first deadline of those that have not begun. Written under the mutex.
  std::atomic<std::int64_t> first_deadline_{Request::kForever};
  std::mutex mutex_;
  std::condition_variable sent_;
  // Guarded by mutex_.
  Deque<Sent> queue_;
  Vector<Request*> running_;  // The operations of the errands that threads run. Has room.
  bool stop_ = false;
  std::size_t idle_ = 0;
  Vector<std::thread> threads_;
};

}  // namespace tiermem

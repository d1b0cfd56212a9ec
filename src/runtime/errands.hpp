// Errands: calls that somebody began and does not wait for, and that need a thread which may wait.
// One thread works them off in their order; it begins with the first and ends with the context.
#pragma once

#include <condition_variable>
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
};

class Errands {
 public:
  ~Errands() { stop(); }

  /// Any thread. The operation completes when the errand has ended, and may cancel it meanwhile by
  /// its request's flag. Errors: busy when there are too many operations; unavailable without a
  /// thread; shut_down.
  Result<OpHandle> send(Ops& ops, std::unique_ptr<Request> op, std::unique_ptr<Errand> errand);
  /// Any thread. Returns when all that were sent have ended: whatever they wait for must end.
  void stop();

 private:
  struct Sent {
    Request* op = nullptr;  // Owned by the operations until its end.
    std::unique_ptr<Errand> errand;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable sent_;
  Deque<Sent> queue_;   // Guarded by mutex_.
  bool stop_ = false;   // Guarded by mutex_.
  std::thread thread_;  // Begun under mutex_.
};

}  // namespace tiermem

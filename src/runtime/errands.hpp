// Errands: calls that run as operations and need a thread that may wait. One thread runs them in
// order. It starts with the first errand and ends with the context.
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

  /// Any thread. The operation completes when the errand has ended; until it ends, the operation
  /// may cancel it through its request's flag. Errors: busy if there are too many operations;
  /// unavailable without a thread; shut_down.
  Result<OpHandle> send(Ops& ops, std::unique_ptr<Request> op, std::unique_ptr<Errand> errand);
  /// Any thread. Returns when all errands have ended: everything they wait for must end.
  void stop();

 private:
  struct Sent {
    Request* op = nullptr;  // Owned by the operations until it ends.
    std::unique_ptr<Errand> errand;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable sent_;
  Deque<Sent> queue_;   // Guarded by mutex_.
  bool stop_ = false;   // Guarded by mutex_.
  std::thread thread_;  // Started under mutex_.
};

}  // namespace tiermem

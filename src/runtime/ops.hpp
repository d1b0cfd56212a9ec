// Operations under way: requests whose caller did not wait. A handle is an index and a generation,
// like a buffer's. Any thread; one mutex, never held while waiting for the mover.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "mover/request.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class Ops {
 public:
  Ops() = default;
  ~Ops();
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  static constexpr std::size_t kMost = 65536;

  /// Takes the request over; its on_done and context are set. 0 when kMost operations are under
  /// way.
  OpHandle add(std::unique_ptr<Request> request);
  Request* request_of(OpHandle op);
  /// invalid_argument for a handle that is none; `busy` if it is not done at the deadline; else its
  /// status, and the operation is consumed. `deadline_ns` as of now_ns(); 0: only look.
  Status wait(OpHandle op, std::int64_t deadline_ns);
  /// A new descriptor, the caller's, that is readable once the operation is done.
  /// invalid_argument; no_capacity when the process has no descriptor left.
  Result<int> descriptor(OpHandle op);
  /// Marks it cancelled; false for a handle that is none.
  bool cancel(OpHandle op);
  std::size_t live() const;

  /// [who forks] Nobody is inside meanwhile.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Entry {
    std::unique_ptr<Request> request;
    std::atomic<std::uint32_t> done{0};
    std::uint32_t generation = 1;
    bool claimed = false;  // Somebody is consuming it.
    int event = -1;        // Once somebody asked for a descriptor; theirs are duplicates.
    Ops* table = nullptr;
  };
  Entry* find(OpHandle op);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tiermem

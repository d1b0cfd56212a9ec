// Threads that work on memory of their own beside a sequence and check it themselves: no result of
// theirs depends on the sequence, and none of the sequence's on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace judge {

/// Counts in each page of its memory. A store that is lost shows.
class Counter {
 public:
  bool start();  ///< False: no memory.
  std::uint64_t wrong() const { return wrong_.load(); }

 private:
  void count();

  std::uint64_t* words_ = nullptr;
  std::atomic<std::uint64_t> wrong_{0};
};

/// Makes random calls on mappings of its own, and compares each page with a model of it.
class Caller {
 public:
  void start();
  /// Whether it makes calls. Waits for the end of the round that it is in.
  void work(bool on) {
    const std::lock_guard lock(round_);
    on_ = on;
  }
  bool works() const { return on_; }  ///< Called by the thread that calls work().
  std::uint64_t wrong() const { return wrong_.load(); }

 private:
  void call();

  std::mutex round_;
  bool on_ = false;  // Guarded by round_.
  std::atomic<std::uint64_t> wrong_{0};
};

}  // namespace judge

// Threads that use their own memory beside a sequence, and check it themselves. Their results do
// not depend on the sequence, and the sequence's results do not depend on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace judge {

/// Increments a counter in each page of its memory, so a lost store is detected.
class Counter {
 public:
  bool start();  ///< Returns false if there is no memory.
  std::uint64_t wrong() const { return wrong_.load(); }

 private:
  void count();

  std::uint64_t* words_ = nullptr;
  std::atomic<std::uint64_t> wrong_{0};
};

/// Makes random calls on its own mappings, and compares each page with a model.
class Caller {
 public:
  void start();
  /// Starts or stops its calls. Waits for the end of the current round.
  void work(bool on) {
    const std::lock_guard lock(round_);
    on_ = on;
  }
  bool works() const { return on_; }  ///< For the thread that calls work().
  std::uint64_t wrong() const { return wrong_.load(); }

 private:
  void call();

  std::mutex round_;
  bool on_ = false;  // Guarded by round_.
  std::atomic<std::uint64_t> wrong_{0};
};

}  // namespace judge

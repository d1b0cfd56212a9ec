// Reads the rows of one large matrix ahead while it is multiplied. ggml reports the end of an
// operation only, and the output matrix of a small model may exceed the memory. But the product of
// a matrix and one vector is written row by row. So the result is filled with a mark before, and a
// thread looks how many rows have lost it. It reads them by a system call, which fails if they were
// freed: an evaluation that is aborted reports no end.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace tiermem::ggml {

class Pacer {
 public:
  /// Starts a thread. `reached(rows)` is called in it while a product is watched, whenever more
  /// rows are done.
  explicit Pacer(std::function<void(std::size_t)> reached);
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  /// Marks the result, which nothing may use yet, and watches it.
  void watch(float* result, std::size_t rows);
  /// Ends the watch: the result may be used afterwards. Does nothing without one.
  void stop();

 private:
  void run();
  /// Returns the number of rows without the mark, from `from` on, before the first one with it.
  static std::size_t count_done(const float* result, std::size_t from, std::size_t rows);

  const std::function<void(std::size_t)> reached_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const float* result_ = nullptr;  // Null: nothing is watched.
  std::size_t rows_ = 0;
  std::size_t done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tiermem::ggml

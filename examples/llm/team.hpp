// Team: a few threads that share the rows of one matrix. The caller is one of them; one thread at a
// time calls run(). The assignment of rows to threads changes from run to run, so rows must be
// independent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace llm {

class Team {
 public:
  /// `threads` counts the caller; at least 1.
  explicit Team(unsigned threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  using Work = std::function<void(std::size_t begin, std::size_t end)>;
  /// Calls `work` on pieces of [0, items) that cover it once, and returns when all are done.
  void run(std::size_t items, const Work& work);

 private:
  void member();
  void take_pieces();

  // For the current run; the caller writes them before `round_` rises, and members read them after.
  const Work* work_ = nullptr;
  std::size_t items_ = 0, piece_ = 1;

  std::atomic<std::size_t> cursor_{0};    // The next piece's first item; taken by all.
  std::atomic<std::uint32_t> round_{0};   // Rises for every run, and for the end.
  std::atomic<std::uint32_t> active_{0};  // Members that have not finished the round.
  std::atomic<bool> stopping_{false};     // Written by the destructor before the last round.
  std::vector<std::jthread> members_;
};

}  // namespace llm

// The workers of a context: a few threads that run jobs for the mover. Beside them are populate
// workers, which only take jobs that bring pages. If the kernel takes long to clear pages, every
// processor may help. Hashing on two processors that share their memory costs more and finishes no
// sooner (docs/decisions/populate-workers.md). All worker threads start and end here.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/arena.hpp"
#include "mover/job.hpp"

namespace tiermem {

class WorkerThreads final : public Workers {
 public:
  /// `wake` is called on a worker's thread when a job has ended; it must be cheap and must not
  /// block. If some threads cannot be created, the others do the work.
  WorkerThreads(unsigned workers, unsigned populate_workers, std::function<void()> wake);
  /// Whether there is at least one worker.
  bool works() const { return workers_.born > 0; }
  /// Waits for running jobs and their copies; drops jobs that have not begun.
  ~WorkerThreads() override;

  /// [child of fork, its only thread] No job is under way. Creates this process's threads; false:
  /// none.
  bool follow_fork();

  void submit(Job* job) override;
  std::size_t reap(std::span<Done> done) override;
  void copied(Job& job) override;
  void copy_begun(Job& job, std::uint64_t ordinal) override;

 private:
  /// Threads that take the same jobs.
  struct Crew {
    const bool only_fills;
    const unsigned wanted;
    std::condition_variable available;
    unsigned born = 0;
    unsigned asleep = 0;  // Guarded by mutex_; avoids notifications without a waiter.
  };

  bool start();
  void start(Crew& crew);
  void work(Crew& crew);
  Job* take_for(const Crew& crew);
  void end(Job& job);

  const std::function<void()> wake_;
  std::mutex mutex_;
  Crew workers_, populate_workers_;
  /// Jobs that come first: their copy of device memory has ended, or is about to start. A device
  /// must not be idle while many frames are prepared for later copies. Guarded by mutex_.
  Deque<Job*> first_;
  Deque<Job*> queue_;     // All others. Guarded by mutex_.
  Vector<Done> done_;     // Guarded by mutex_.
  bool stop_ = false;     // Guarded by mutex_.
  unsigned running_ = 0;  // Guarded by mutex_: jobs that are in neither list.
  std::condition_variable none_runs_;
  Vector<std::thread> threads_;  // Last: they use all members above.
};

}  // namespace tiermem

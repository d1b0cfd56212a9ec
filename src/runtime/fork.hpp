// What a fork needs of a context: standing still while it happens, and going on in two processes.
// The handlers of fork are in fork.cpp, with the parts of Context::Impl that they call.
//
// The order, in the thread that forks:
//   before   the mover comes to rest (nothing on hands or devices) and stands still; calls that
//            change books are waited for and held up; the locks that others could hold are taken
//   parent   all that is undone; the slots of now are kept as long as the child lives
//   child    what is the process's own is made anew: userfaultfd, homes of frames, ring, threads,
//            files to write to
//
// Calls that wait (for room, for pins) are not waited for: what they wait for may be the thread
// that forks. Their requests stay where they are; in the child they end.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/results.hpp"

namespace tiermem {

/// Once for the process, and before other libraries register theirs if the mover is to run while
/// theirs do: handlers run last before a fork and first after it when registered first. A context
/// calls it when it starts.
/// False: there is no memory to note them down.
[[nodiscard]] bool register_fork_handlers();

/// What the handlers do, for whoever makes a process without them (_Fork, clone). The first, then
/// one of the others in each process.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

/// Where the mover's thread stands while the process forks.
class StandStill {
 public:
  // [who forks]
  void ask();
  /// The mover stands. False at the deadline (CLOCK_MONOTONIC).
  bool wait_until(std::int64_t deadline_ns);
  void end();
  /// [child of fork, its only thread] Nobody stands here.
  void follow_fork();

  // [mover's thread]
  bool asked() const;
  /// Until end().
  void stand();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;     // Guarded by mutex_.
  bool standing_ = false;  // Guarded by mutex_.
};

/// Calls that change books without the mover pass here, many at once; a fork closes it. Nobody
/// waits inside for the mover, and nobody passes twice.
class ForkGate {
 public:
  /// `used`: false, where forks are not followed, and passing costs nothing.
  explicit ForkGate(bool used) : used_(used) { make(); }
  ~ForkGate() { must(::pthread_rwlock_destroy(&lock_)); }
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;

  class Pass {
   public:
    explicit Pass(ForkGate& gate) : gate_(gate) {
      // Refused to the thread that forks, which has closed it, and may pass.
      passed_ = gate_.used_ && ::pthread_rwlock_rdlock(&gate_.lock_) == 0;
    }
    ~Pass() {
      if (passed_) {
        must(::pthread_rwlock_unlock(&gate_.lock_));
      }
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    ForkGate& gate_;
    bool passed_ = false;
  };
  // [who forks]
  void close() { must(::pthread_rwlock_wrlock(&lock_)); }
  void open() { must(::pthread_rwlock_unlock(&lock_)); }
  /// [child of fork, its only thread] Open; those who waited do not exist here.
  void follow_fork() { make(); }

 private:
  void make();

  const bool used_;
  pthread_rwlock_t lock_;
};

}  // namespace tiermem

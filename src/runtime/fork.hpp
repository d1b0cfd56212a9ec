// The parts of fork that concern a context: it stands still during the fork, and continues in two
// processes. The handlers are in fork.cpp, with the parts of Context::Impl that they call.
//
// The order, in the forking thread:
//   before   the mover comes to rest (nothing on workers or devices) and stands still; calls that
//            change records are waited for and held up; locks that other threads could hold are
//            taken
//   parent   all of that is undone; the current slots are kept as long as the child lives
//   child    the process's own parts are recreated: userfaultfd, homes of frames, ring, threads,
//            and files to write to
//
// Calls that wait (for room, for pins) are not waited for, because the forking thread may be what
// they wait for. Their requests stay in place; in the child they end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/writer_first_mutex.hpp"

namespace tiermem {

/// Call it once for the process. Call it before other libraries register handlers if the mover must
/// run during theirs: handlers registered first run last before a fork and first after it. A
/// context calls it when it starts. Returns false if allocation fails.
[[nodiscard]] bool register_fork_handlers();

/// The handlers' work, for code that creates processes without them (_Fork, clone). Call the first,
/// and one of the others in each process.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

/// Returns the number of forks that this process and its ancestors are children of, as far as the
/// handlers ran. It changes only while the process has one thread.
std::uint64_t forks_behind() noexcept;

/// Where the mover's thread stands still while the process forks.
class StandStill {
 public:
  // [the forking thread]
  void ask();
  /// Waits until the mover stands still. Returns false at the deadline (CLOCK_MONOTONIC).
  bool wait_until(std::int64_t deadline_ns);
  void end();
  /// [child of fork, its only thread] No thread stands here.
  void follow_fork();

  // [mover's thread]
  bool asked() const;
  /// Stands still until end().
  void stand();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;     // Guarded by mutex_.
  bool standing_ = false;  // Guarded by mutex_.
};

/// Calls that change records without the mover pass here, many at once; a fork closes the gate. No
/// thread waits inside for the mover, and no thread passes twice.
class ForkGate {
 public:
  /// `used`: false if forks are not followed; passing is then free.
  explicit ForkGate(bool used) : used_(used) {}

  /// A thread may have several at a time. Only the outermost locks: a second lock would wait for a
  /// fork, which waits for the first.
  class Pass {
   public:
    explicit Pass(ForkGate& gate) : gate_(gate) {
      // Fails on the forking thread, which has closed the gate and may pass.
      passed_ = gate_.used_ && t_inside != &gate_ && gate_.lock_.lock_shared_unless_writer();
      if (passed_) {
        before_ = std::exchange(t_inside, &gate_);
      }
    }
    ~Pass() {
      if (passed_) {
        t_inside = before_;
        gate_.lock_.unlock_shared();
      }
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    static inline __thread const ForkGate* t_inside __attribute__((tls_model("initial-exec"))) =
        nullptr;
    ForkGate& gate_;
    const ForkGate* before_ = nullptr;
    bool passed_ = false;
  };
  // [the forking thread]
  void close() { lock_.lock(); }
  void open() { lock_.unlock(); }
  /// [child of fork, its only thread] Opens the gate; threads that waited do not exist here.
  void follow_fork() { lock_.follow_fork(); }

 private:
  const bool used_;
  WriterFirstMutex lock_;
};

}  // namespace tiermem

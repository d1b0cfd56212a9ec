// A readers-writer lock that prefers writers. That of the standard library lets readers that come
// all the time delay a writer without a limit.
#pragma once

#include <pthread.h>

#include <new>

#include "base/results.hpp"

namespace tiermem {

/// Many readers, or one writer. A writer that waits keeps new readers out, so a thread that reads
/// must not begin to read again. Fits std::shared_lock and std::unique_lock.
class WriterFirstMutex {
 public:
  WriterFirstMutex() = default;
  ~WriterFirstMutex() { must(::pthread_rwlock_destroy(&lock_)); }
  WriterFirstMutex(const WriterFirstMutex&) = delete;
  WriterFirstMutex& operator=(const WriterFirstMutex&) = delete;

  void lock() { must(::pthread_rwlock_wrlock(&lock_)); }
  void unlock() { must(::pthread_rwlock_unlock(&lock_)); }
  void lock_shared() { must(::pthread_rwlock_rdlock(&lock_)); }
  /// Returns false on the thread that is the writer.
  bool lock_shared_unless_writer() { return ::pthread_rwlock_rdlock(&lock_) == 0; }
  void unlock_shared() { unlock(); }
  /// [child of fork, its only thread] The lock is free: threads that had it do not exist here.
  void follow_fork() { new (this) WriterFirstMutex; }

 private:
  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
};

}  // namespace tiermem

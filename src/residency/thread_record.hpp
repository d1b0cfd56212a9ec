// The process's record of a thread that uses contexts: its chunks of view slots, and the context
// that it is inside. Records are in a list that only grows; the record of an ended thread is
// reused.
//
// The destructor of a pthread key detects the end of a thread. The destructor may be missing
// because no key is available, or the program's own destructors may use tiermem after it. In these
// cases the record is found by the id of its thread, which has ended. A thread takes a new record
// after its own was returned.
//
// Threads: mine() and `inside` are for the calling thread; each other member names its guard.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/arena.hpp"

namespace tiermem {

struct ThreadRecord : InArena {
  struct OfContext {
    std::uint64_t context = 0;
    Vector<std::uint32_t> chunks;  // Chunks of view slots; the first is tried first.
  };
  /// The context that the thread is inside (runtime/in_call.hpp). Written by the thread, read by a
  /// thread that ends a context.
  std::atomic<const void*> inside{nullptr};
  /// Used by the thread itself; guarded by the mutex of all records once the thread has ended.
  Vector<OfContext> chunks;
  /// Kernel thread id; 0: no thread. Written under the mutex of all records.
  std::atomic<std::int32_t> thread{0};
  ThreadRecord* next = nullptr;  ///< Constant.

  /// Returns the record of the calling thread, or null if it has none yet.
  static ThreadRecord* known() noexcept { return t_record; }
  /// Returns the record of the calling thread, and creates it if needed. Throws bad_alloc.
  static ThreadRecord& mine();
  /// Returns the first of all records.
  static const ThreadRecord* first() noexcept;
  bool has_ended() const noexcept;

 private:
  friend class LiveViews;
  static __thread ThreadRecord* t_record __attribute__((tls_model("initial-exec")));
};

/// Returns the kernel thread id of the calling thread.
std::int32_t this_thread() noexcept;

}  // namespace tiermem

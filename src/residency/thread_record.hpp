// What the process keeps of a thread that uses contexts: its chunks of view slots, and the context
// that it is inside of. Records are in a list that only grows; a record of an ended thread serves
// the next one.
//
// The end of a thread is noticed by the destructor of a pthread key. Where no key can be had, or
// the program's own destructors use tiermem after it, the record is found by the number of its
// thread, which has ended. A thread whose record was given back takes one anew.
//
// Threads: mine() and `inside` are for the calling thread; the rest says what guards it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/arena.hpp"

namespace tiermem {

struct ThreadRecord : InArena {
  struct OfContext {
    std::uint64_t context = 0;
    Vector<std::uint32_t> chunks;  // Of view slots; the first is tried first.
  };
  /// The context that the thread is inside of (runtime/in_call.hpp). Written by the thread, read by
  /// one that ends a context.
  std::atomic<const void*> inside{nullptr};
  /// The thread's own. Once the thread has ended: guarded by the mutex of all records.
  Vector<OfContext> chunks;
  /// As the kernel numbers it; 0: of no thread. Written under the mutex of all records.
  std::atomic<std::int32_t> thread{0};
  ThreadRecord* next = nullptr;  ///< Constant.

  /// The calling thread's, or null when it has none yet.
  static ThreadRecord* known() noexcept { return t_record; }
  /// The calling thread's. Throws bad_alloc.
  static ThreadRecord& mine();
  /// The first of all records.
  static const ThreadRecord* first() noexcept;
  bool has_ended() const noexcept;

 private:
  friend class LiveViews;
  static __thread ThreadRecord* t_record __attribute__((tls_model("initial-exec")));
};

/// The calling thread, as the kernel numbers it.
std::int32_t this_thread() noexcept;

}  // namespace tiermem

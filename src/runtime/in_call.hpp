// Calls under way. They record which context a thread is inside of, so that the context can end
// while other threads call it. A context ends in three steps: new calls find its tombstone; the
// calls that began earlier are waited for; then its parts are destroyed.
//
// Threads: any. Marking costs two plain stores and the light half of a fence; the thread that ends
// a context runs the heavy half (os/asymmetric_fence.hpp).
#pragma once

#include <atomic>

#include "base/arena.hpp"
#include "base/no_cancel.hpp"
#include "residency/thread_record.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

/// Marks the calling thread as inside a context, for the life of the object. Nests.
class CallMark {
 public:
  explicit CallMark(const Context& context) noexcept;
  ~CallMark();
  CallMark(const CallMark&) = delete;
  CallMark& operator=(const CallMark&) = delete;

  /// The context, or the tombstone, for which Impl::usable() returns shut_down.
  Context::Impl* operator->() const noexcept { return impl_; }
  Context::Impl& operator*() const noexcept { return *impl_; }

  /// Returns once no thread is inside `impl`. New calls must not find it any more.
  static void await_none(const Context::Impl& impl) noexcept;

 private:
  enum class Mark : std::uint8_t { none, record, count };
  void leave() noexcept;

  ThreadRecord* record_;
  Mark mark_ = Mark::none;
  Context::Impl* impl_ = nullptr;
};

/// A call that allocates from the arena.
class InCall : ArenaScope, public CallMark {
 public:
  explicit InCall(const Context& context) noexcept : CallMark(context) {}
};

/// A call that may wait or make system calls. The thread is not cancelled during the call.
class SlowCall : NoCancel, public InCall {
 public:
  explicit SlowCall(const Context& context) noexcept : InCall(context) {}
};

}  // namespace tiermem

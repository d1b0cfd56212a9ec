// Calls under way: what a thread is inside of, so that a context can end while other threads call
// it. A context ends in three steps: calls that begin find its tombstone instead; those that began
// before are waited for; then what they use goes.
//
// Threads: any. Marking costs two plain stores: the thread that ends a context makes the others'
// stores visible by membarrier(2), and where there is none, each call has a fence.
#pragma once

#include <atomic>

#include "base/arena.hpp"
#include "base/no_cancel.hpp"
#include "residency/thread_record.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

/// Marks the calling thread as inside of a context, for the life of the object. Nests.
class CallMark {
 public:
  explicit CallMark(const Context& context) noexcept;
  ~CallMark();
  CallMark(const CallMark&) = delete;
  CallMark& operator=(const CallMark&) = delete;

  /// The context, or its tombstone, for which Impl::usable() answers shut_down.
  Context::Impl* operator->() const noexcept { return impl_; }
  Context::Impl& operator*() const noexcept { return *impl_; }

  /// Returns once no thread is inside of `impl`. No call may find it any more.
  static void await_none(const Context::Impl& impl) noexcept;
  /// Before the first context.
  static void prepare() noexcept;

 private:
  enum class Mark : std::uint8_t { none, record, count };
  void leave() noexcept;

  ThreadRecord* record_;
  Mark mark_ = Mark::none;
  Context::Impl* impl_ = nullptr;
};

/// A call whose memory is the arena's.
class InCall : ArenaScope, public CallMark {
 public:
  explicit InCall(const Context& context) noexcept : CallMark(context) {}
};

/// A call that may wait or make system calls: it is not cancelled meanwhile.
class SlowCall : NoCancel, public InCall {
 public:
  explicit SlowCall(const Context& context) noexcept : InCall(context) {}
};

}  // namespace tiermem

// Marks calls, and waits for marked ones.
#include "runtime/in_call.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace tiermem {
namespace {

// True if the kernel refuses membarrier(2): each call then has a fence. Written before the first
// context.
constinit std::atomic<bool> g_fences{true};

long membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

ThreadRecord* record_of_thread() noexcept {
  if (ThreadRecord* const known = ThreadRecord::known(); known != nullptr) [[likely]] {
    return known;
  }
  try {
    return &ThreadRecord::mine();
  } catch (const std::bad_alloc&) {
    return nullptr;  // The call is counted instead.
  }
}

}  // namespace

void CallMark::prepare() noexcept {
  g_fences.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0,
                 std::memory_order_relaxed);
}

CallMark::CallMark(const Context& context) noexcept : record_(record_of_thread()) {
  for (;;) {
    impl_ = context.impl_.load(std::memory_order_acquire);
    const void* const outer =
        record_ != nullptr ? record_->inside.load(std::memory_order_relaxed) : nullptr;
    if (outer == impl_ || impl_->is_tombstone()) {
      return;  // A nested call, or a call on the permanent tombstone.
    }
    if (record_ != nullptr && outer == nullptr) [[likely]] {
      mark_ = Mark::record;
      record_->inside.store(impl_, std::memory_order_relaxed);
      // Partner: membarrier, or the fence below.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (g_fences.load(std::memory_order_relaxed)) [[unlikely]] {
        std::atomic_thread_fence(std::memory_order_seq_cst);
      }
    } else {
      mark_ = Mark::count;
      impl_->unmarked_calls.fetch_add(1, std::memory_order_seq_cst);
    }
    // Either this thread sees the tombstone, or await_none() sees the mark.
    if (context.impl_.load(std::memory_order_seq_cst) == impl_) [[likely]] {
      return;
    }
    leave();
  }
}

CallMark::~CallMark() {
  leave();
}

// Release: the effects of the call happen before await_none() returns.
void CallMark::leave() noexcept {
  if (mark_ == Mark::record) {
    record_->inside.store(nullptr, std::memory_order_release);
  } else if (mark_ == Mark::count) {
    impl_->unmarked_calls.fetch_sub(1, std::memory_order_release);
  }
  mark_ = Mark::none;
}

void CallMark::await_none(const Context::Impl& impl) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!g_fences.load(std::memory_order_relaxed) &&
      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
      (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
       membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)) {
    // The program has forbidden the call since. A store leaves its processor in far less time than
    // this.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  constexpr auto kNap = std::chrono::microseconds(50);
  for (const ThreadRecord* record = ThreadRecord::first(); record != nullptr;
       record = record->next) {
    while (record->inside.load(std::memory_order_acquire) == &impl && !record->has_ended()) {
      std::this_thread::sleep_for(kNap);
    }
  }
  while (impl.unmarked_calls.load(std::memory_order_acquire) != 0) {
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace tiermem

// Marks calls, and waits for marked ones.
#include "runtime/in_call.hpp"

#include <chrono>
#include <thread>

#include "os/asymmetric_fence.hpp"

namespace tiermem {
namespace {

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
      light_fence();  // Partner: await_none().
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
  heavy_fence();
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

// A stack for work that needs more of it than the calling thread may have. Programs create threads
// with 16 KiB, and tiermem does not choose which thread first needs it.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/results.hpp"
#include "base/sanitized.hpp"

namespace tiermem {

/// A stack of 512 KiB. One thread at a time.
class LargeStack {
 public:
  LargeStack() noexcept {
    if (!kSanitized) {  // A sanitizer knows only the stacks of threads.
      void* const made = ::mmap(nullptr, kBytes + kGuard, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
      stack_ = made == MAP_FAILED ? nullptr : static_cast<std::byte*>(made);
    }
    if (stack_ != nullptr) {
      best_effort(::mprotect(stack_, kGuard, PROT_NONE), "an overflow then is not noticed");
    }
  }
  ~LargeStack() {
    if (stack_ != nullptr) {
      best_effort(::munmap(stack_, kBytes + kGuard), "the memory is lost");
    }
  }
  LargeStack(const LargeStack&) = delete;
  LargeStack& operator=(const LargeStack&) = delete;

  /// Calls `work`, which must not throw, on this stack; on the caller's if there was no memory. It
  /// is the same thread. The mask of signals must be the same after the work as before it.
  template <typename Work>
  void run(Work&& work) {
    if (stack_ == nullptr) {
      work();
      return;
    }
    ucontext_t there, here;
    must(::getcontext(&there));
    there.uc_stack.ss_sp = stack_ + kGuard;
    there.uc_stack.ss_size = kBytes;
    there.uc_link = &here;
    // makecontext() passes integers.
    using Plain = std::remove_reference_t<Work>;
    const auto enter = +[](unsigned low, unsigned high) noexcept {
      (*reinterpret_cast<Plain*>(low | std::uintptr_t{high} << 32))();
    };
    const auto at = reinterpret_cast<std::uintptr_t>(&work);
    ::makecontext(&there, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(at),
                  static_cast<unsigned>(at >> 32));
    must(::swapcontext(&here, &there));
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{512} << 10, kGuard = 4096;

  std::byte* stack_ = nullptr;
};

}  // namespace tiermem

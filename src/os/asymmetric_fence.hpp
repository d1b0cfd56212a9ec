// A fence in two halves, for a rule between a frequent and a rare thread: each stores, and then
// loads what the other stores, and at least one of them must see the other's store. The frequent
// thread runs the light half, which costs no instruction of the processor. The rare thread runs the
// heavy half, which makes the kernel fence all threads of the process (membarrier(2)). Where the
// kernel refuses that, the light half is an ordinary fence.
//
// Threads: any.
#pragma once

#include <atomic>

namespace tiermem {

namespace detail {
// True if the kernel refuses membarrier(2). Written before the first light half.
extern std::atomic<bool> light_fence_is_full;
}  // namespace detail

/// Call it before the first context.
void prepare_fences() noexcept;

inline void light_fence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (detail::light_fence_is_full.load(std::memory_order_relaxed)) [[unlikely]] {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

/// Costs a system call.
void heavy_fence() noexcept;

}  // namespace tiermem

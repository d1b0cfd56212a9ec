// The heavy half, by membarrier(2).
#include "os/asymmetric_fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace tiermem {
namespace {

long membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

}  // namespace

constinit std::atomic<bool> detail::light_fence_is_full{true};

void prepare_fences() noexcept {
  detail::light_fence_is_full.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0,
                                    std::memory_order_relaxed);
}

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!detail::light_fence_is_full.load(std::memory_order_relaxed) &&
      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
      (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
       membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)) {
    // The program has forbidden the call since. A store leaves its processor in far less time than
    // this.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace tiermem
